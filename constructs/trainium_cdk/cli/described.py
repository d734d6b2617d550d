"""The cluster of an environment file, as its stack would describe it: deployed or not, nothing is asked of AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainium_cdk import engines
from trainium_cdk.cli.options import Target, described, id_in_app

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer

    from trainium_cdk import outputs
    from trainium_cdk.outputs import Cluster
    from trainium_cdk.settings import Environment


def planned(ctx: typer.Context, on: Target) -> Cluster | None:
    """The cluster of the environment file that is given, or in use, as the team or user of the options sees it. None without such a file,
    with --cluster, or with a stack that is none of the file's.

    Raises:
        OutputsError: it has no such team or user.
    """
    environment = None if on.cluster_file else described(ctx)
    if environment is None or engines.of_stack(id_in_app(on.stack, environment)) is None:
        return None
    return on.of_team(described_cluster(environment, on.stack))


def described_cluster(environment: Environment, stack: str) -> Cluster:
    """The cluster of one of an environment's stacks, by the stack's id in the app or its name in the account.

    Raises:
        OutputsError: no engine has such a stack.
    """
    from trainium_cdk import outputs
    from trainium_cdk.cli.check import engine_of
    from trainium_cdk.outputs.forms import UNKNOWN
    from trainium_cdk.outputs.pcs import pcs_outputs

    engine, unknown = engine_of(stack, environment), UNKNOWN
    exported: dict[str, Callable[[], outputs.Exports]] = {
        "slurm": lambda: outputs.slurm_outputs(environment, head_node_id=unknown, bucket=unknown),
        "eks": lambda: outputs.eks_outputs(environment, bucket=unknown),
        "pcs": lambda: pcs_outputs(environment, cluster_id=unknown, login_group_id=unknown, bucket=unknown),
    }
    exports = exported[engine]()
    return outputs.parse(stack, environment.region, {key: value for key, (value, _) in exports.items()})
