"""Reading a deployed stack's outputs."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from trainium_cdk.aws import in_words
from trainium_cdk.aws import region as aws_region
from trainium_cdk.outputs.contract import CONTRACT, OutputsError, fields
from trainium_cdk.outputs.eks import EKS_KEYS, EksCluster
from trainium_cdk.outputs.slurm import SLURM_KEYS, SlurmCluster

Cluster = SlurmCluster | EksCluster


def parse(stack: str, region: str, outputs: Mapping[str, str]) -> Cluster:
    """The cluster that a stack's outputs describe.

    Raises:
        OutputsError: the outputs are not of such a stack, or of another version of the contract.
    """
    contract = outputs.get("TrnContract")
    if contract is None:
        raise OutputsError(
            f"stack {stack} is not one of trainium-cdk: it has no output TrnContract. Name another stack"
        )
    if contract != CONTRACT:
        raise OutputsError(
            f"stack {stack} was deployed by a release that speaks contract {' '.join(contract.split())}; this one speaks {CONTRACT}. "
            "Deploy the stack again with this release, or use that release's `trn`"
        )
    engine = outputs.get("TrnEngine")
    try:
        if engine == "slurm":
            return SlurmCluster.model_validate({**fields(SLURM_KEYS, outputs), "stack": stack, "region": region})
        if engine == "eks":
            data = fields(EKS_KEYS, outputs)
            data["claims"] = [c for c in data.get("claims", "").split(",") if c]
            return EksCluster.model_validate({**data, "stack": stack, "region": region})
    except ValidationError as e:
        first = e.errors()[0]
        where = ".".join(map(str, first["loc"])) or "outputs"
        raise OutputsError(
            f"the outputs of stack {stack} cannot be read: {where}: {first['msg']}. Deploy the stack again"
        ) from None
    raise OutputsError(f"stack {stack} runs {engine!r}, which this release of `trn` does not know. Use a newer release")


def read(stack: str, region: str | None = None) -> Cluster:
    """Read a deployed stack's outputs with boto3's usual credentials.

    Raises:
        OutputsError: no credentials, no such stack, a deploy that is not complete, or outputs of something else.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        client = boto3.client("cloudformation", region_name=aws_region(region))
        found = client.describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as e:
        if "does not exist" in str(e):
            where = f"in {client.meta.region_name}"
            raise OutputsError(
                f"there is no stack {stack} {where}. Deploy it (`cdk deploy {stack}`), or give --stack and --region"
            ) from None
        raise OutputsError(f"cannot read stack {stack}: {in_words(e)}") from None
    except BotoCoreError as e:
        raise OutputsError(f"cannot read stack {stack}: {in_words(e)}") from None
    status = found["StackStatus"]
    if status not in {"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"}:
        raise OutputsError(f"stack {stack} is {status}, not deployed. Wait for it, or run `cdk deploy {stack}` again")
    return parse(stack, client.meta.region_name, {o["OutputKey"]: o["OutputValue"] for o in found.get("Outputs", [])})
