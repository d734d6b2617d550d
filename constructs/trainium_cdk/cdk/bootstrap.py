"""The scripts that run on the nodes, in the stack's own bucket, and the permission to read them."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aws_cdk import CustomResource, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

import trainium_cdk.description.checks.neuron as neuron
from trainium_cdk.cdk.bucket import TrnBucket
from trainium_cdk.cdk.helpers.acknowledged import acknowledge_wildcards
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.custom_resources import custom_resource, permissions_of
from trainium_cdk.cdk.helpers.described import Described
from trainium_cdk.cdk.helpers.permissions import allow, grant_keys, objects_arn
from trainium_cdk.cdk.helpers.rules import refuse_tokens
from trainium_cdk.cdk.helpers.stack_wide import once, place_of
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks.pcluster import unknown_system
from trainium_cdk.description.checks.pcs import system_without_image
from trainium_cdk.description.checks.rule import join_words
from trainium_cdk.description.node import env as node_env
from trainium_cdk.description.node.scripts import ENTRY, files, own_files, scripts_dir
from trainium_cdk.description.settings import Bootstrap, Environment, Network, Pcluster, Pcs, Problem
from trainium_cdk.description.settings.slurm import SlurmSection
from trainium_cdk.problems import KeyPath
from trainium_cdk.text import TOKEN

_KIND = "TrnNodeScripts"
_ARGUMENTS: dict[KeyPath, str] = {
    ("bootstrap",): "bootstrap",
    ("pcluster",): "cluster",
    ("pcs",): "cluster",
    ("storage",): "mount_dirs",
    ("storage", "efs", "mount_dir"): "mount_dirs[0]",
    ("storage", "fsx", "mount_dir"): "mount_dirs[1]",
}
PREFIX = "node-scripts/"
"""Where the scripts are in the bucket. Old ones stay: nodes that are starting, and rollbacks, still need them."""


class TrnBootstrap(Checked):
    """The node scripts of a Slurm cluster, and their settings (`node.env`), in S3.

    Three things with three lives. The entry script never changes: ParallelCluster refuses an update of a head node's script.
    The pointer, an SSM parameter, never changes its name. What the pointer holds, the zip file of scripts and settings, has
    another key whenever a byte of it changes, below a prefix that stays: the permission to read it stays the same.

    Example:
        slurm = settings.Pcluster(queues=(settings.Queue.of("trn2.48xlarge"),))
        scripts = TrnBootstrap(self, "Scripts", bucket=bucket, cluster=slurm)
        TrnPcluster(self, "Slurm", vpc=vpc, cluster=slurm, bootstrap=scripts)

    Args:
        bucket: Holds the scripts.
        cluster: The cluster whose nodes run them: its queues, users and operating system decide what fits. Default: a `settings.Pcluster`
            of trn1.32xlarge.
        bootstrap: What they install: Neuron, a framework, packages and scripts of yours. Default: what trains on the cluster's types.
        mount_dirs: Where the shared file systems are mounted, at most two. Default: /efs.
        network: What the nodes reach: without internet access they install nothing. Default: one with a NAT gateway.
        metrics_log_group: Name of the log group of `TrnObservability` that the nodes send metrics to, as text: `/trainium/CLUSTER/metrics`.
            Default: they send none.
        parameter_name: Name of the SSM parameter, as text. Default: CloudFormation gives one.
        catalog: The catalogue with the instance types. Default: this release's.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        SettingsError: a value is wrong.
        ValueError: more than two mount directories, or a token of the CDK in what is written into a file for the nodes.
        FileNotFoundError: the scripts are not in the installation.
    """

    entry_url: str
    """s3:// URL of entry.sh."""
    entry_checksum: str
    """SHA-256 of entry.sh, as 64 hexadecimal digits."""
    scripts_url: str
    """s3:// URL of the zip file with configure-node.sh, lib/ and node.env."""
    environment: Environment
    """The environment that describes the nodes: their types, operating system, mounts and software."""
    engine: str
    """Whose section of that environment has their users and operating system."""
    publisher: iam.IGrantable
    """The permissions of the function that copies the scripts into the bucket."""
    bucket: s3.IBucket
    """Holds the scripts."""
    pointer: ssm.IStringParameter
    """Holds `scripts_url`; a head node's entry script starts from its name."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bucket: s3.IBucket,
        cluster: Pcluster | Pcs = Pcluster.model_construct(),  # noqa: B008  frozen
        bootstrap: Bootstrap = Bootstrap.model_construct(),  # noqa: B008  frozen
        mount_dirs: Sequence[str] = ("/efs",),
        network: Network = Network.model_construct(),  # noqa: B008  frozen
        metrics_log_group: str | None = None,
        parameter_name: str | None = None,
        catalog: Catalog | None = None,
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        refuse_tokens(self, parameter_name=parameter_name)
        if len(mount_dirs) > 2:
            raise ValueError(
                f"{self.node.path}: mount_dirs = {', '.join(mount_dirs)}: a cluster mounts one EFS and one FSx for Lustre file system "
                "at most. Fix: give at most two directories"
            )
        self.bucket, self.engine = bucket, "pcs" if isinstance(cluster, Pcs) else "slurm"
        of_cluster: dict[str, Any] = {"pcs" if isinstance(cluster, Pcs) else "pcluster": cluster}
        described = Described(self, _ARGUMENTS, self.engine)
        # only the mount directories of the file systems reach the nodes
        mounts = dict(zip(("efs", "fsx"), ({"mount_dir": each} for each in mount_dirs), strict=False))
        self.environment = environment = described.environment(
            catalog or Catalog.load(),
            bootstrap=bootstrap,
            storage={"efs": None, "fsx": None} | mounts,
            network=network,
            **of_cluster,
        )
        # before anything reads what the catalogue has of it
        described.require(environment, unknown_system, system_without_image)
        if rules:
            described.check(environment, neuron.RULES)
        own = {f"bootstrap.scripts[{i}].script": each.script for i, each in enumerate(environment.bootstrap.scripts)}
        _refuse_written_tokens(self, {"metrics_log_group": metrics_log_group or "", **own})
        scripts = scripts_dir()
        with tempfile.TemporaryDirectory() as folder:  # the CDK copies it into cdk.out at once
            settings = node_env.render(environment, engine=self.engine, metrics_group=metrics_log_group or "")
            file = _pack(files(scripts, settings) | own_files(environment), Path(folder) / "node.zip")
            packed = assets.Asset(self, "Scripts", path=str(file))
            scripts_digest = _sha256(file)
        entry = assets.Asset(self, "Entry", path=str(scripts / ENTRY))
        # Our own hash of the content: the key then depends on nothing but the bytes, whichever CDK release makes it; and
        # entry.sh runs no zip file that has another one.
        self.entry_checksum = _sha256(scripts / ENTRY)
        keys = {f"{PREFIX}entry-{self.entry_checksum[:32]}.sh": entry, f"{PREFIX}{scripts_digest}.zip": packed}
        published = self._publish(keys)
        self.entry_url, self.scripts_url = (f"s3://{once(bucket, 'bucket_name')}/{key}" for key in keys)
        pointer = ssm.StringParameter(
            self,
            "Pointer",
            parameter_name=parameter_name,
            string_value=self.scripts_url,
            description="Where the node scripts are now (trainium-cdk)",
        )
        pointer.apply_removal_policy(RemovalPolicy.DESTROY)
        pointer.node.add_dependency(published)
        self.pointer = pointer

    def _publish(self, keys: Mapping[str, assets.Asset]) -> CustomResource:
        """Copy the assets from the CDK's bucket, which belongs to every app in the account."""
        targets = [objects_arn(self.bucket, key) for key in keys]
        sources = {key: f"{asset.s3_bucket_name}/{asset.s3_object_key}" for key, asset in keys.items()}
        arns = [f"arn:{place_of(self).partition}:s3:::{source}" for source in sources.values()]
        permissions = permissions_of(self, _KIND)
        self.publisher = permissions.policy
        permissions.add(self, lambda: [allow(arns, "s3:GetObject"), allow(targets, "s3:PutObject")])
        grant_keys(self.publisher, self.bucket, write=True)
        return custom_resource(
            self,
            "Published",
            kind=_KIND,
            properties={
                "Bucket": once(self.bucket, "bucket_name"),
                "Objects": [{"Source": source, "Key": key} for key, source in sources.items()],
            },
            permissions=permissions,
        )

    def read_statements(self) -> list[iam.PolicyStatement]:
        """Return the statements that a node needs to fetch the scripts: read the objects below their prefix, and this parameter. No node may
        write there, whatever else it may do in the bucket. The scripts run as root on every node."""
        objects = objects_arn(self.bucket, f"{PREFIX}*")
        return [
            allow(objects, "s3:GetObject", sid="NodeScripts"),
            iam.PolicyStatement(
                sid="NodeScriptsStay",
                effect=iam.Effect.DENY,
                actions=["s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"],
                resources=[objects],
            ),
            allow(self.pointer.parameter_arn, "ssm:GetParameter", sid="NodeScriptsPointer"),
        ]

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a role of this app fetch the scripts."""
        objects = [objects_arn(self.bucket, f"{PREFIX}*")]
        read = iam.Grant.add_to_principal(grantee=grantee, actions=["s3:GetObject"], resource_arns=objects)
        if isinstance(grantee, iam.Role | iam.ManagedPolicy):
            acknowledge_wildcards(grantee, [allow(objects, "s3:GetObject")])
        _, refusal, _ = self.read_statements()
        grantee.grant_principal.add_to_principal_policy(refusal)
        find = iam.Grant.add_to_principal(
            grantee=grantee, actions=["ssm:GetParameter"], resource_arns=[self.pointer.parameter_arn]
        )
        for key in grant_keys(grantee, self.bucket):
            read = read.combine(key)
        return read.combine(find)


def _refuse_written_tokens(construct: Construct, written: Mapping[str, str]) -> None:
    """Refuse tokens in files for the nodes, because the deployment does not fill them in."""
    for name, text in written.items():
        if TOKEN in text:
            raise ValueError(
                f"{construct.node.path}: {name} has a token of the CDK, which has no value before the deployment, and it is written into a "
                "file for the nodes now. Fix: write the value as plain text, or let the script read it on the node, for example from an SSM "
                "parameter"
            )


def scripts_of(
    construct: Construct, environment: Environment, bootstrap: TrnBootstrap | None, *, engine: str, rules: bool
) -> tuple[Environment, TrnBootstrap]:
    """The environment of a cluster of an engine, with the software that the node scripts install, and the network that they know; and the scripts,
    new ones in a `TrnBucket` where none are given. With `rules`, contradictions are registered as problems."""
    if bootstrap is None:
        made = TrnBootstrap(
            construct,
            "Bootstrap",
            bucket=TrnBucket(construct, "Files").bucket,
            cluster=environment.pcs if engine == "pcs" else environment.pcluster,
            mount_dirs=environment.storage.mount_dirs,
            catalog=environment.catalog,
            rules=rules,
        )
        return environment, made
    scripts = bootstrap.environment
    with_scripts = environment.model_copy(update={"bootstrap": scripts.bootstrap, "network": scripts.network})
    if not rules:
        return with_scripts, bootstrap
    theirs, ours = scripts.slurm_sections[bootstrap.engine], with_scripts.slurm_sections[engine]
    compared = {
        "os": ([theirs.os], [ours.os]),
        "mount_dirs": (sorted(scripts.storage.mount_dirs), sorted(with_scripts.storage.mount_dirs)),
        "users": (_people(theirs), _people(ours)),
        "neuron_release": ([scripts.release.version], [with_scripts.release.version]),
    }
    contradictions = [
        Problem(
            ("bootstrap",),
            f"{name} {join_words(given)}",
            f"the cluster's nodes have {join_words(needed)}",
            "give TrnBootstrap the settings of this cluster, and its mount directories",
        )
        for name, (given, needed) in compared.items()
        if given != needed
    ]
    described = Described(construct, {("bootstrap",): "bootstrap"}, engine)
    described.register(contradictions)
    described.check(with_scripts, neuron.RULES)
    return with_scripts, bootstrap


def _people(section: SlurmSection) -> list[str]:
    """Its users, and whether more come from a directory, for comparison."""
    directory = ["a directory"] if section.several_users == "directory" else []
    return [*(f"{user.name} ({user.uid})" for user in section.users), *directory] or ["none"]


def _pack(contents: Mapping[str, bytes], target: Path) -> Path:
    """A zip file, not compressed, so that the same files give the same bytes on every machine."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as packed:
        for name, content in sorted(contents.items()):
            packed.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return target


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
