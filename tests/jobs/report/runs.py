"""Jobs as their logs tell them: recorded lines of the vendor's script, of compilations, and of restarts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.client.jobs.report import Run
from trainium_cdk.client.jobs.report.run import described, price
from trainium_cdk.client.jobs.status import JobStatus, Stage
from trainium_cdk.description.catalog import Catalog

CLUSTER = make_cluster()
TRN2 = make_cluster(
    fleet("trn2.48xlarge", nodes=1), region="us-east-2", framework="torch-native", neuron_release="2.33.0"
)
"""As `trn init` describes it."""
CATALOG = Catalog.load()
BEGAN = 1795161600  # 2026-11-20T08:00:00Z


def _record(name: str) -> dict[str, Any]:
    return dict(json.loads((Path(__file__).parent / f"recorded/{name}.json").read_text("utf-8")))


def log_lines(nodes: int, steps: int | None = None) -> dict[str, bytes]:
    """Stage -> the lines of its log that have a record."""
    logs = _record(f"nodes-{nodes}")["logs"]
    train = logs["train"] if steps is None else logs["train"][: 1 + steps]
    return {
        stage: "".join(f"{line}\n" for line in lines).encode()
        for stage, lines in {"precompile": logs["precompile"], "train": train}.items()
    }


def recorded(nodes: int, steps: int | None = None) -> Run:
    """A job of bert-large on the sandbox's Slurm, recorded on 2026-11-24. With `steps`, while it ran: after so many."""
    found = _record(f"nodes-{nodes}")
    fields = found["status"]
    stages = [Stage(**stage) for stage in fields["stages"]]
    if steps is not None:
        stages[-1] = replace(stages[-1], state="RUNNING", exit_code=None, ended=None)
    made = run(
        JobStatus(**{**fields, "stages": tuple(stages)}),
        settings=found["settings"],
        planned_steps=found["settings"]["run_steps"],
    )
    for stage, text in log_lines(nodes, steps).items():
        made.feed(stage, text)
    return made


def fine_tuned() -> Run:
    """A fine-tuning of Qwen3-8B on the sandbox's Slurm, recorded on 2026-11-29: `trn submit finetune --run-steps 200`."""
    found = _record("finetune")
    fields = found["status"]
    state = JobStatus(**{**fields, "stages": tuple(Stage(**stage) for stage in fields["stages"])})
    jobs = cast("Any", SimpleNamespace(cluster=TRN2))
    made = described(jobs, state, CATALOG, found["settings"])
    made.feed("train", "".join(f"{line}\n" for line in found["logs"]["train"]).encode())
    return made


def status(*stages: Stage, id: str = "bert-large-20261120-4f3a9c", nodes: int = 1, **changes: Any) -> JobStatus:
    fields = {"queue": "compute1", "instance_type": "trn1.32xlarge", "global_batch_size": 16384 * nodes, **changes}
    return JobStatus(id=id, kind="bert-large", nodes=nodes, stages=stages, **fields)


def run(found: JobStatus, **changes: Any) -> Run:
    return Run(found, price(found, CLUSTER, CATALOG), now=BEGAN + 20_000, **changes)


def trained(
    nodes: int = 1,
    *,
    steps: int = 400,
    id: str = "bert-large-20261120-4f3a9c",
    starts: Sequence[int] = (3000,),
    each: float = 3600.0,
    **changes: Any,
) -> Run:
    """A job whose compilation took 21 minutes and whose training ended 2 h 46 min after the submission."""
    stages = (
        Stage("prepare", "1", "COMPLETED", "", "n-1", 0, BEGAN, BEGAN + 90),
        Stage("precompile", "2", "COMPLETED", "", "n-[1-2]", 0, None, BEGAN + 1380),
        changes.pop("train", Stage("train", "3", "COMPLETED", "", "n-[1-2]", 0, None, BEGAN + 10_000)),
    )
    made = run(status(*stages, id=id, nodes=nodes, **changes), settings={"nodes": nodes, "optimizer": "adamw"})
    made.feed("precompile", b"trn: precompile: Slurm job 2 on n-[1-2], 2026-11-20T08:02:00Z\n")
    for line in ("Total graphs: 36", "Total successful compilations: 36", "Total failed compilations: 0"):
        made.feed("precompile", f"2026-11-20 08:20:00.000738: INFO ||PARALLEL_COMPILE||: {line}\n".encode())
    for start in starts:
        clock = f"{8 + start // 3600:02}:{start // 60 % 60:02}:{start % 60:02}"
        made.feed("train", f"trn: train: Slurm job 3 on n-[1-2], 2026-11-20T{clock}Z\n".encode())
    for step in range(1, steps + 1):
        made.feed(
            "train",
            b"LOG Fri Nov 20 09:00:05 2026 - (0, %d) step_loss : %.4f learning_rate : %.2e throughput : %.2f \n"
            % (step, 11 - 8 * step / (step + 60), 4e-4 * step / steps, each * nodes + step % 7),
        )
    return made
