"""Whether an environment can have nodes, as far as AWS tells: before a job goes there, and after a deployment has failed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from trainium_cdk.errors import TrnError, UpdateError
from trainium_cdk.jobs import failover

if TYPE_CHECKING:
    from trainium_cdk.settings import Environment


def unavailable(env: Environment, name: str, queue: str, *, new: bool) -> str:
    """Why no node of the job's queue can start there, as far as AWS tells that before; empty if it does not.

    Args:
        name: of its stack in the account.
        new: whether that is to be deployed.

    Raises:
        UpdateError: it could not be deployed: the region is not bootstrapped.
    """
    from trainium_cdk.checks.live import Aws, checks_of
    from trainium_cdk.checks.live.model import OfQueue
    from trainium_cdk.checks.live.reservations import COMING
    from trainium_cdk.checks.live.run import run as run_checks
    from trainium_cdk.cli.preflight import engine_of

    engine = engine_of(name, env)
    wanted = ("zones", "offering", "reservations", "trn-quota-", *(["bootstrap"] if new else []))
    checks = [check for check in checks_of(engine) if check.name.startswith(wanted)]
    found = run_checks(OfQueue(env, engine, queue=queue), Aws(env.region), checks)
    for one in found:
        if one.check == "bootstrap" and one.level == "error":
            raise UpdateError(f"{env.source.file}: {one.what}: {one.reason}. {one.fix}")
    bad = [one for one in found if one.check.startswith(wanted) and (one.level == "error" or one.value in COMING)]
    return f"{bad[0].what} = {bad[0].value}: {bad[0].reason}" if bad else ""


def lacked(name: str, region: str) -> str:
    """What AWS has recorded of a failed deployment, if that is want of capacity; empty if it is something else."""
    from trainium_cdk._aws import aws_errors_as
    from trainium_cdk.cli.destroy import clients
    from trainium_cdk.operations import why

    with contextlib.suppress(TrnError), aws_errors_as(UpdateError, f"cannot read stack {name}"):
        report = why.why(name, clients(region))
        found = [*([report.first] if report.first else []), *report.evidence]
        return next((one.text for one in found if failover.of_capacity(one.text)), "")
    return ""
