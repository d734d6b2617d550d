"""The scripts that run on the nodes, as S3 assets, and the permission to read them."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from aws_cdk import AssetHashType, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from trainium_cdk import node_env
from trainium_cdk.scripts import ENTRY, scripts_dir
from trainium_cdk.settings import Environment


class TrnBootstrap(Construct):
    """The node scripts and their settings (`node.env`) in S3.

    Three things with three lives. The entry script never changes: ParallelCluster refuses an update of a head node's script.
    The pointer, an SSM parameter, never changes its name. What the pointer holds, the zip file of scripts and settings, has
    another key whenever a byte of it changes.
    """

    entry_url: str
    """s3:// URL of entry.sh."""
    scripts_url: str
    """s3:// URL of the zip file with configure-node.sh, lib/ and node.env."""
    pointer: ssm.StringParameter
    """Holds `scripts_url`; a head node's entry script starts from its name."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment):
        """
        Raises:
            FileNotFoundError: the scripts are not in the installation.
        """
        super().__init__(scope, id)
        scripts = scripts_dir()
        with tempfile.TemporaryDirectory() as folder:  # the CDK copies it into cdk.out at once
            tree = _stage(scripts, Path(folder) / "node", node_env.render(environment))
            self._scripts = assets.Asset(self, "Scripts", path=str(tree))
        entry = scripts / ENTRY
        # Our own hash of the content: the key then hangs on nothing but the bytes, whichever CDK release makes it.
        self._entry = assets.Asset(
            self,
            "Entry",
            path=str(entry),
            asset_hash=hashlib.sha256(entry.read_bytes()).hexdigest(),
            asset_hash_type=AssetHashType.CUSTOM,
        )
        self.entry_url, self.scripts_url = self._entry.s3_object_url, self._scripts.s3_object_url
        self.pointer = ssm.StringParameter(
            self,
            "Pointer",
            parameter_name=f"/trainium/{environment.cluster_name}/node-scripts",
            string_value=self.scripts_url,
            description="Where the node scripts are now (trainium-cdk)",
        )
        self.pointer.apply_removal_policy(RemovalPolicy.DESTROY)

    def read_statements(self) -> list[iam.PolicyStatement]:
        """What a node needs to fetch the scripts: these two objects and this parameter, nothing else of the bucket."""
        return [
            iam.PolicyStatement(
                sid="NodeScripts",
                actions=["s3:GetObject"],
                resources=[self._object_arn(self._entry), self._object_arn(self._scripts)],
            ),
            iam.PolicyStatement(
                sid="NodeScriptsPointer",
                actions=["ssm:GetParameter"],
                resources=[self.pointer.parameter_arn],
            ),
        ]

    def grant_read(self, grantee: iam.IGrantable) -> None:
        """Lets a role of this app fetch the scripts."""
        for statement in self.read_statements():
            grantee.grant_principal.add_to_principal_policy(statement)

    def _object_arn(self, asset: assets.Asset) -> str:
        return f"arn:{Stack.of(self).partition}:s3:::{asset.s3_bucket_name}/{asset.s3_object_key}"


def _stage(scripts: Path, target: Path, settings: str) -> Path:
    """The tree that travels in the zip file: no documentation, so that a word there replaces no node."""
    ignored = shutil.ignore_patterns("*.md", ENTRY, "__pycache__", "*.pyc")
    shutil.copytree(scripts, target, ignore=ignored, copy_function=shutil.copyfile)
    (target / "node.env").write_text(settings, "utf-8")
    return target
