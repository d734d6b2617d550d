"""The two templates to compare: the deployed one from AWS, and the one that the app synthesises now."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_cdk._aws import aws_errors_as, failures
from trainium_cdk._aws import client as aws_client
from trainium_cdk.client.operations.updates.eks import with_stack_tags
from trainium_cdk.client.operations.updates.spec import command, variables
from trainium_cdk.description.checks.live.account import resume_rollback
from trainium_cdk.errors import TrnError, similar

Template = dict[str, Any]


@dataclass(frozen=True)
class Assembled:
    """A stack as the app synthesises it now.

    Attributes:
        name: its name in the account.
        region: None if it comes from the credentials.
    """

    name: str
    region: str | None
    template: Template


def assemble(stack: str, environment: Path | None = None, app: Path | None = None) -> Assembled:
    """Synthesises the app with the CDK's command line, as `cdk deploy` does, into a temporary folder.

    Args:
        stack: id of the stack as in `cdk deploy`, or its name in the account.
        environment: file for `-c env=FILE`.
        app: folder with the app's cdk.json. Default: where the command is run.

    Raises:
        TrnError: `cdk` is not found.
        TrnError: the synthesis fails (the message has its last lines), or has no such stack.
    """
    context = ["-c", f"env={environment.resolve()}"] if environment else []
    with tempfile.TemporaryDirectory(prefix="trn-diff-") as folder:
        done = subprocess.run(
            [str(command().absolute()), "synth", "-e", stack, *context, "--quiet", "--no-notices", "--output", folder],
            cwd=app, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env={**variables(), "CDK_VALIDATION": "false", "CI": "true", "NO_COLOR": "1", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1"},
        )  # fmt: skip
        if done.returncode:
            raise TrnError(_reason((done.stderr or done.stdout).strip(), stack, app))
        return _pick(stack, Path(folder))


def _reason(words: str, stack: str, app: Path | None) -> str:
    """Explain an error of the CDK's command line, with the fix."""
    if "--app is required" in words:
        return f"there is no CDK app in {app or 'this folder'} (no cdk.json with `app`): run it in the app's folder, or give --app FOLDER"
    if "No stacks match" in words:
        from trainium_cdk.description import engines

        close = similar(stack, [one.stack for one in engines.ENGINES.values()])
        return f"the app has no stack {stack}: `cdk ls` in its folder lists them" + (
            f". Did you mean {close}?" if close else ""
        )
    return f"the app does not synthesise:\n{words[-2000:]}"


def _pick(stack: str, folder: Path) -> Assembled:
    artifacts: Mapping[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8")).get("artifacts", {})
    names = []
    for key, artifact in artifacts.items():
        if artifact.get("type") != "aws:cloudformation:stack":
            continue
        properties = artifact["properties"]
        name = properties.get("stackName") or key
        names.append(key)
        if stack in (key, name, artifact.get("displayName")):
            region = str(artifact.get("environment", "")).rpartition("/")[2]
            template = json.loads((folder / properties["templateFile"]).read_text("utf-8"))
            tagged = with_stack_tags(template, properties.get("tags") or {})
            return Assembled(name, None if "unknown" in region else region or None, tagged)
    raise TrnError(f"the app has no stack {stack}; it has {', '.join(names) or 'none'}")


def _refuse_state(client: Any, name: str, status: str) -> None:
    """Raises an error for a stack whose template is not what is deployed, because a deployment failed or has not ended."""
    region = client.meta.region_name
    destroy = f"trn destroy {name} --region {region}"
    if status.endswith("_IN_PROGRESS"):
        raise TrnError(f"stack {name} is {status}: wait until that has ended, and run this again")
    if status in ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"):
        raise TrnError(f"stack {name} is {status}: its creation failed. Delete it ({destroy}), and deploy it again")
    if status == "DELETE_FAILED":
        raise TrnError(f"stack {name} is {status}: its deletion failed. Delete the rest of it ({destroy})")
    if status.endswith("_FAILED"):
        again = f"aws cloudformation rollback-stack --stack-name {name} --region {region}"
        if status != "UPDATE_FAILED":
            pages = client.get_paginator("list_stack_resources").paginate(StackName=name)
            again = resume_rollback(name, region, [r for page in pages for r in page["StackResourceSummaries"]])
        raise TrnError(
            f"stack {name} is {status}: its last deployment failed. Correct what its events name, and roll it back "
            f"({again}), then run this again"
        )


def deployed(name: str, region: str | None = None) -> Template | None:
    """The template that a stack was last deployed with; None if it does not exist.

    Raises:
        TrnError: AWS does not respond, or rejects the request; or the stack cannot be deployed to in its state.
    """
    with aws_errors_as(TrnError, f"cannot read stack {name}"):
        try:
            client = aws_client("cloudformation", region)
            stack = client.describe_stacks(StackName=name)["Stacks"][0]
            if stack["StackStatus"] in ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE"):
                return None
            _refuse_state(client, name, stack["StackStatus"])
            body = client.get_template(StackName=name, TemplateStage="Original")["TemplateBody"]
        except failures() as e:
            if "does not exist" in str(e):
                return None
            raise
    found: Template = json.loads(
        body if isinstance(body, str) else json.dumps(body)
    )  # plain dicts: boto3 returns ordered ones
    return with_stack_tags(found, {tag["Key"]: tag["Value"] for tag in stack.get("Tags", ())})
