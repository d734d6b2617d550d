"""What several commands share: where the jobs are, and how things are said."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trainium_cdk.jobs import JobStatus, SlurmBackend
    from trainium_cdk.jobs.kubernetes import KubernetesBackend

Stack = Annotated[str, typer.Option(envvar="TRN_STACK", help="Stack that the jobs run on.")]
Region = Annotated[str | None, typer.Option(help="AWS region. Default: that of your AWS configuration.")]
Local = Annotated[
    bool | None,
    typer.Option(
        "--local/--ssm", help="Run commands on this machine, the head node, or through SSM. Default: found out."
    ),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster", envvar="TRN_CLUSTER", help="File with what `trn cluster` printed, in place of the stack's outputs."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job, as `trn submit` and `trn list` print it.")]
DEFAULT_STACK = "TrnPclusterStack"
EKS_STACK = "TrnEksStack"
"""Where a command is for Kubernetes alone."""


def backend(stack: str, region: str | None, local: bool | None, file: Path | None) -> SlurmBackend | KubernetesBackend:
    from trainium_cdk.jobs.connect import connect

    return connect(stack, region, local=local, cluster=None if file is None else read_cluster(file))


def kubernetes(stack: str, region: str | None, file: Path | None) -> KubernetesBackend:
    """The jobs of a stack that runs Kubernetes.

    Raises:
        TrnError: it runs something else.
    """
    from trainium_cdk.jobs.errors import TrnError
    from trainium_cdk.jobs.kubernetes import KubernetesBackend

    found = backend(stack, region, None, file)
    if not isinstance(found, KubernetesBackend):
        raise TrnError(
            f"this is for Kubernetes, but stack {found.cluster.stack} runs Slurm. Name another (--stack TrnEksStack)"
        )
    return found


def read_cluster(file: Path) -> Any:
    """The cluster that `trn cluster` wrote to a file.

    Raises:
        OutputsError: it cannot be read, or is something else.
    """
    from pydantic import TypeAdapter, ValidationError

    from trainium_cdk.outputs import Cluster, OutputsError

    try:
        return TypeAdapter(Cluster).validate_json(file.read_text("utf-8"))
    except OSError as e:
        raise OutputsError(f"cannot read {file}: {e.strerror}. Write it with `trn cluster > {file}`") from None
    except (ValidationError, UnicodeDecodeError):
        raise OutputsError(f"{file} does not describe a cluster. Write it with `trn cluster > {file}`") from None


def say(text: str) -> None:
    """Words for people."""
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def told_when_stopped(tell: Callable[[], str]) -> Iterator[None]:
    """Where Ctrl-C or SIGTERM ends a command, one line says how things are then."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say(f"\n{tell()}")  # below the ^C of a terminal
        raise


def hand_out(data: bytes, handed_out: Callable[[int], None]) -> None:
    """Write to standard output, and tell of every piece how long it was: Ctrl-C comes before a piece or after it is told of."""
    out, left = sys.stdout.fileno(), memoryview(data)
    while left:
        select.select([], [out], [])  # a reader may be slow; what a pipe is ready for never waits
        with _signals_wait():
            size = os.write(out, left[: select.PIPE_BUF])
            handed_out(size)
        left = left[size:]


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Until the end of the block, which is to be short."""
    came: list[int] = []
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for caught in came:
        signal.raise_signal(caught)


def at(stack: str, region: str | None) -> str:
    """The options that lead a command to the same jobs."""
    return ("" if stack == DEFAULT_STACK else f" --stack {stack}") + (f" --region {region}" if region else "")


def put(data: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(data, indent=2), flush=True)


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table on standard output; plain columns, each row on one line, where that is no terminal."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            print("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title or None, title_justify="left")
    for column in columns:
        made.add_column(column)
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    Console().print(made)


def one_line(status: JobStatus) -> str:
    """How a job is, in one line."""
    parts = [f"{s.name} {s.state}" + (f" ({s.reason})" if s.reason else "") for s in status.stages]
    return f"{status.id}: {', '.join(parts)}"
