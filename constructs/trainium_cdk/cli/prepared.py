"""`trn environments`: the Python environments that jobs have made on the shared file system."""

from __future__ import annotations

from typing import Annotated

import typer

from trainium_cdk.catalog.plain import counted
from trainium_cdk.cli.options import Json, Target, backend, on_cluster
from trainium_cdk.cli.output import echo_json, log, table


@on_cluster()
def environments(
    on: Target,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Remove this one; repeat it for more. `unused`: all that no running or waiting job uses.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List, or remove, the Python environments of jobs.

    They are on the shared file system. A job that needs an environment makes it, unless it is there. Jobs that run or wait keep theirs.
    """
    from dataclasses import asdict

    from trainium_cdk.jobs import prepared

    jobs = backend(on)
    if remove:
        gone = prepared.remove(jobs, remove)
        log(f"removed {counted(len(gone), 'environment')}, {sum(one.megabytes for one in gone):,} MB")
        return
    there = prepared.prepared(jobs)
    if as_json:
        echo_json([asdict(one) for one in there])
        return
    rows = [
        [o.name, o.kind, o.python, f"{o.megabytes:,}", o.made, ", ".join(o.jobs), o.base, " ".join(o.requirements)]
        for o in there
    ]
    table("", ["environment", "kind", "Python", "MB", "made", "used by", "on top of", "packages"], rows)
