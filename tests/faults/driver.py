"""Stacks driven through CloudFormation itself: the CDK's template and assets, without its command line, which takes longer than the
stack."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from sandbox import LocalAws
from sandbox.local_aws import ACCOUNT
from trainium_cdk.description.settings import Environment
from trainium_cdk.stacks.eks import TrnEksStack
from trainium_cdk.stacks.pcluster import TrnPclusterStack
from trainium_cdk.stacks.pcs import TrnPcsStack

ROOT = Path(__file__).parents[2]
Template = dict[str, Any]


def assemble(
    environment: Environment, kind: type[TrnPclusterStack | TrnEksStack | TrnPcsStack], name: str, folder: Path
) -> Template:
    """The template that the CDK's command line would deploy, with its assets in `folder`."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = cdk.App(outdir=str(folder), builtin_cloud_formation_validation=False, context=context)
    kind(app, name, environment=environment, env=cdk.Environment(account=ACCOUNT, region=environment.region))
    app.synth()
    found: Template = json.loads((folder / f"{name}.template.json").read_text())
    return found


def publish(aws: LocalAws, folder: Path) -> None:
    """Upload the assets to the bootstrap's bucket, as `cdk deploy` does."""
    for manifest in folder.glob("*.assets.json"):
        for asset in json.loads(manifest.read_text()).get("files", {}).values():
            path = folder / asset["source"]["path"]
            body = _zipped(path) if asset["source"]["packaging"] == "zip" else path.read_bytes()
            for destination in asset["destinations"].values():
                bucket = destination["bucketName"].replace("${AWS::AccountId}", ACCOUNT)
                key = destination["objectKey"]
                aws.client("s3").put_object(Bucket=bucket.replace("${AWS::Region}", aws.region), Key=key, Body=body)


def _zipped(folder: Path) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(p for p in folder.rglob("*") if p.is_file()):
            archive.write(file, file.relative_to(folder))
    return packed.getvalue()


class Driver:
    """One stack of the local AWS."""

    def __init__(self, aws: LocalAws, name: str) -> None:
        self.aws, self.name = aws, name
        self.client = aws.client("cloudformation")
        self._bucket = f"cdk-hnb659fds-assets-{ACCOUNT}-{aws.region}"
        self._id = ""

    def create(self, template: Template, tags: Mapping[str, str] | None = None) -> str:
        """The status it ends with."""
        self._id = self.client.create_stack(StackName=self.name, **self._arguments(template, tags))["StackId"]
        return self.settle()

    def update(self, template: Template, tags: Mapping[str, str] | None = None) -> str:
        self.client.update_stack(StackName=self.name, **self._arguments(template, tags))
        return self.settle()

    def delete(self) -> str:
        self.client.delete_stack(StackName=self._id)
        return self.settle()

    def settle(self) -> str:
        """Wait until nothing is in progress."""
        while True:
            status: str = self.client.describe_stacks(StackName=self._id)["Stacks"][0]["StackStatus"]
            if not status.endswith("IN_PROGRESS"):
                return status
            time.sleep(0.05)

    def physical(self) -> dict[str, str]:
        """Logical id -> physical id of what there is."""
        found = self.client.describe_stack_resources(StackName=self._id)["StackResources"]
        deleted = ("DELETE_COMPLETE", "DELETE_SKIPPED")
        return {
            r["LogicalResourceId"]: r.get("PhysicalResourceId", "") for r in found if r["ResourceStatus"] not in deleted
        }

    def failures(self) -> str:
        pages = self.client.get_paginator("describe_stack_events").paginate(StackName=self._id)
        events = [e for page in pages for e in page["StackEvents"]]
        return " | ".join(e.get("ResourceStatusReason", "") for e in events if "FAILED" in e["ResourceStatus"])

    def clear(self) -> None:
        """Away with it, whatever its state: for the tests that come after one that failed."""
        self.aws.set_faults([])
        for _ in range(3):
            if not self._id or self.delete() == "DELETE_COMPLETE":
                return

    def _arguments(self, template: Template, tags: Mapping[str, str] | None) -> dict[str, Any]:
        key = f"templates/{self.name}.json"
        self.aws.client("s3").put_object(Bucket=self._bucket, Key=key, Body=json.dumps(template).encode())
        return {
            "TemplateURL": f"{self.aws.endpoint}/{self._bucket}/{key}",
            "Capabilities": ["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
            "Tags": [{"Key": k, "Value": v} for k, v in (tags or {}).items()],
        }
