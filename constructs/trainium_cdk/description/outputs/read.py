"""The cluster that a stack's outputs describe: of a deployed stack, or of one that an environment has."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from trainium_cdk._aws import aws_errors_as, failures
from trainium_cdk._aws import client as aws_client
from trainium_cdk.description import engines
from trainium_cdk.description.outputs.contract import CONTRACT, CONTRACT_KEY, UNKNOWN, ClusterOutputs, Exports, wrong
from trainium_cdk.description.outputs.eks import EksCluster, eks_outputs
from trainium_cdk.description.outputs.slurm import PcsCluster, SlurmCluster, pcs_outputs, slurm_outputs
from trainium_cdk.errors import OutputsError

if TYPE_CHECKING:
    from trainium_cdk.description.settings import Environment

Cluster = ClusterOutputs
"""A cluster of any engine."""
_MODELS: Mapping[str, type[Cluster]] = {"slurm": SlurmCluster, "eks": EksCluster, "pcs": PcsCluster}


class _Named(BaseModel):
    model_config = ConfigDict(defer_build=True)

    engine: str


def parse(stack: str, region: str, outputs: Mapping[str, str]) -> Cluster:
    """The cluster that a stack's outputs describe.

    Raises:
        OutputsError: the outputs are not of such a stack, or of another version of the contract.
    """
    contract = outputs.get(CONTRACT_KEY)
    if contract is None:
        raise OutputsError(
            f"stack {stack} is not one of trainium-cdk: it has no output {CONTRACT_KEY}. Name another stack"
        )
    if contract != CONTRACT:
        raise OutputsError(
            f"stack {stack} was deployed by a release that speaks contract {' '.join(contract.split())}; this one speaks {CONTRACT}. "
            "Deploy the stack again with this release, or use that release's `trn`"
        )
    name = outputs.get("TrnEngine")
    model = _MODELS.get(name or "")
    if model is None:
        raise OutputsError(
            f"stack {stack} runs {name!r}, which this release of `trn` does not know. Use a newer release"
        )
    try:
        found = model.model_validate({**model.fields(outputs), "stack": stack, "region": region})
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"])) or "outputs"
        raise OutputsError(
            f"the outputs of stack {stack} cannot be read: {where}: {first['msg']}. Deploy the stack again"
        ) from None
    for field, value in wrong(found):
        raise OutputsError(
            f"the outputs of stack {stack} are not believed: {field} is {str(value)[:80]!r}. Deploy the stack again, or ask who has made it"
        )
    return found


def described_cluster(environment: "Environment", engine: str, stack: str) -> Cluster:
    """The cluster of an environment's stack, as the stack would describe it: deployed or not, nothing is asked of AWS.

    Args:
        engine: name of the engine whose stack it is.
        stack: the stack's id in the app, or its name in the account.
    """
    exported: dict[str, Callable[[], Exports]] = {
        "slurm": lambda: slurm_outputs(environment, head_node_id=UNKNOWN, bucket=UNKNOWN),
        "eks": lambda: eks_outputs(environment, bucket=UNKNOWN),
        "pcs": lambda: pcs_outputs(environment, cluster_id=UNKNOWN, login_group_id=UNKNOWN, bucket=UNKNOWN),
    }
    exports = exported[engine]()
    return parse(stack, environment.region, {key: value for key, (value, _) in exports.items()})


def from_json(text: str) -> Cluster:
    """The cluster that `model_dump_json` wrote.

    Raises:
        TrnError, pydantic.ValidationError: it describes none.
    """
    return _MODELS[engines.get(_Named.model_validate_json(text).engine).name].model_validate_json(text)


def read(stack: str, region: str | None = None, engine: str | None = None) -> Cluster:
    """Read a deployed stack's outputs with boto3's usual credentials.

    Args:
        engine: name of the engine that the caller needs: if there is no such stack, only stacks of it are suggested.

    Raises:
        OutputsError: no credentials, no such stack, a deploy that is not complete, or outputs of something else.
    """
    with aws_errors_as(OutputsError, f"cannot read stack {stack}"):
        client = aws_client("cloudformation", region)
        try:
            found = client.describe_stacks(StackName=stack)["Stacks"][0]
        except failures() as e:
            if "does not exist" not in str(e):
                raise
            there = client.meta.region_name
            raise OutputsError(missing(stack, there, elsewhere(stack, there), engine)) from None
    return _cluster(stack, client.meta.region_name, found["StackStatus"], _values(found))


class Deployed(NamedTuple):
    """A stack of trainium-cdk in an account.

    Attributes:
        status: as CloudFormation names it.
        outputs: its values by key.
    """

    region: str
    name: str
    status: str
    outputs: Mapping[str, str]

    def cluster(self) -> Cluster:
        """Raises OutputsError: a deploy that is not complete, or outputs of another version."""
        return _cluster(self.name, self.region, self.status, self.outputs)


def deployed(region: str) -> list[Deployed]:
    """The stacks of trainium-cdk in a region, by name; also those that are not complete, if they have a name of the app's.

    Raises:
        OutputsError: they cannot be read.
    """
    with aws_errors_as(OutputsError, f"cannot read the stacks in {region}"):
        pages = aws_client("cloudformation", region).get_paginator("describe_stacks").paginate()
        every = [
            Deployed(region, s["StackName"], s["StackStatus"], _values(s))
            for page in pages
            for s in page["Stacks"]
            if not s.get("ParentId")  # a nested stack's name begins with that of its parent
        ]
    return sorted(s for s in every if CONTRACT_KEY in s.outputs or id_in_app(s.name))


def here(region: str | None = None) -> str:
    """The region that is given, else the AWS configuration's. Raises OutputsError: there is none."""
    with aws_errors_as(OutputsError, "cannot tell the region"):
        return str(aws_client("cloudformation", region).meta.region_name)


def _values(stack: Mapping[str, Any]) -> dict[str, str]:
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


_DEPLOYED = {
    "CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE",
    "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS", "IMPORT_COMPLETE", "IMPORT_ROLLBACK_COMPLETE",
}  # fmt: skip
"""States of a stack whose outputs describe its resources. During a clean-up the update, or its rollback, has ended, and what is not needed is deleted."""


def _cluster(stack: str, region: str, status: str, outputs: Mapping[str, str]) -> Cluster:
    if status not in _DEPLOYED:
        next_step = f"Wait for it, or deploy it again: {deployment(stack)}"
        if status == "DELETE_FAILED":
            next_step = f"Delete the rest of it: `trn destroy {stack}`"
        elif status in ("UPDATE_FAILED", "UPDATE_ROLLBACK_FAILED"):  # a deployment would be refused
            next_step = f"Its last deployment failed: `trn why {stack}` has the cause, and `trn diff` prints the command that ends its rollback"
        raise OutputsError(f"stack {stack} is {status}, not deployed. {next_step}")
    return parse(stack, region, outputs)


def deployment(stack: str) -> str:
    """The command that deploys a stack of the app, by its name in the account.

    >>> deployment("TrnEksStack-bert")
    '`cdk deploy TrnEksStack -c env=FILE`, with the file of the environment bert'
    """
    id = id_in_app(stack)
    if id is None:
        return "with the CDK app that it is part of"
    if stack == id:
        return f"`cdk deploy {id} -c env=FILE`, with the environment file (`trn init` writes one)"
    return f"`cdk deploy {id} -c env=FILE`, with the file of the environment {stack.removeprefix(f'{id}-')}"


def id_in_app(stack: str) -> str | None:
    """The id in the app of a stack with this name in the account, in any environment; None if the app has no such stack."""
    ids = (engine.stack for engine in engines.ENGINES.values())
    return next((id for id in ids if stack == id or stack.startswith(f"{id}-")), None)


def missing(
    stack: str, region: str, others: Sequence[str], engine: str | None = None, *, deployable: bool = True
) -> str:
    """Return the message for a stack that is not in a region. It names our stacks there, and regions that have it (`elsewhere`).

    Args:
        engine: see `read`.
        deployable: also say how to deploy it.
    """
    needed = f", and this command is for {engines.get(engine).title} only" if engine else ""
    sentences = [f"there is no stack {stack} in {region}{needed}."]
    if others:
        sentences.append(
            f"It is in {' and in '.join(others)}: give --region, or --environment with the environment's file."
        )
    if found := stacks(region, engine):
        verb, use = ("is", "that name") if len(found) == 1 else ("are", "one of these names")
        sentences.append(f"In {region} there {verb} {', '.join(found)}: use {use}.")
    elif not deployable and not others:
        sentences.append(
            "No other stack of trainium-cdk is there: give another region (--region), or file (--environment)."
        )
    ours = engines.of_stack(id_in_app(stack) or "")
    if deployable and ours and not others and engine in (None, ours.name):
        sentences.append(f"To deploy {stack}: {deployment(stack)}.")
    return " ".join(sentences)


def elsewhere(stack: str, region: str) -> list[str]:
    """The other regions with Trainium in which there is a stack of this name."""
    return sorted(name for name in with_trainium() - {region} if _has(stack, name))


def stacks(region: str, engine: str | None = None) -> list[str]:
    """The stacks of trainium-cdk, of one engine or of all, in a region that can be read; empty where AWS does not answer."""
    try:
        every = deployed(region)
    except OutputsError:
        return []
    return [s.name for s in every if CONTRACT_KEY in s.outputs and engine in (None, s.outputs.get("TrnEngine"))]


def with_trainium() -> set[str]:
    """Return the regions that offer Trainium."""
    from trainium_cdk.description.catalog import Catalog

    known = Catalog.load()
    return {region for name in known.instances for region in known.regions_of(name)}


def _has(stack: str, region: str) -> bool:
    from botocore.config import Config

    quick = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1})
    try:
        aws_client("cloudformation", region, config=quick).describe_stacks(StackName=stack)
    except failures():
        return False
    return True
