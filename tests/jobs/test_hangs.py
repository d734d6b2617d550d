"""What a user sees of a training on a real Slurm that does not go on: `trn status`, `list`, `--watch` and the report."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sandbox.slurm import LocalSlurm
from tests import command
from tests.jobs.conftest import backend as backend
from tests.jobs.conftest import slurm as slurm
from tests.runner.training import TRAINS
from tests.support import until
from trainium_cdk.client.cli import follow, watch
from trainium_cdk.client.jobs.report import collect_all, report
from trainium_cdk.client.jobs.report.run import Live
from trainium_cdk.client.jobs.status import JobStatus
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.jobs import Script, SlurmBackend
from trainium_cdk.runner.spec import HealthRules


def test_what_is_seen_of_a_job_that_hangs(
    backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def trn(*words: str) -> subprocess.CompletedProcess[str]:
        done = command.trn([*words, sent.id, "--cluster", tmp_path / "cluster.json", "--local"], slurm.node_env())
        assert done.returncode == 0, done.stderr
        return done

    (tmp_path / "cluster.json").write_text(backend.cluster.model_dump_json())
    job = Script(filename="train.py", content=TRAINS.encode(), nodes=2, env={"FAULT": "hang"})
    made = backend.render(job, "hangs")
    [sent] = backend.send(
        dataclasses.replace(made, spec=dataclasses.replace(made.spec, health=HealthRules(every=0.4, least=3.0)))
    )

    def hangs() -> JobStatus | None:
        found = backend.status(sent.id)
        return found if found.findings else None

    now = until(hangs, 120)
    assert now
    [found] = now.findings
    assert (found.kind, now.state) == ("hang", "RUNNING")
    assert now.current.reason == found.text
    assert "node 1 at step 23, last line: waits for a device" in found.text
    assert next(one for one in backend.list() if one.id == sent.id).current.reason == found.text
    assert now.to_dict()["stages"][-1]["findings"][0]["kind"] == "hang"

    follow.show(backend.status(sent.id, progress=True))
    said = capsys.readouterr().err
    assert f"{sent.id} hangs since 20" in said
    assert "step 23 of 30" in said

    status = trn("status")
    assert f"{sent.id} {found.text}\n" in status.stderr
    assert f"\t{found.text}\n" in status.stdout
    assert json.loads(trn("status", "--json").stdout)["stages"][-1]["findings"] == [dataclasses.asdict(found)]

    live = Live(backend, [sent.id], Catalog.load())
    live.look()
    console = Console(width=300, record=True, file=io.StringIO())
    for part in watch._job(live.statuses[0], live.runs, console, 30):
        console.print(part)
    assert "hangs since 20" in console.export_text()

    page = report(collect_all(backend, [sent.id]), backend.cluster, Catalog.load(), time.time())
    assert "hangs since 20" in page
    assert f"trn status {sent.id}" in page
    assert backend.cancel(sent.id).findings == ()


def test_a_job_that_hangs_at_its_seventh_step(
    backend: SlurmBackend, slurm: LocalSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every view says how old the last step is, and none when the job would end."""
    script = "import time\nfor i in range(1, 8):\n    print(f'step {i}/40 | loss 1.6', flush=True)\n    time.sleep(0.15)\ntime.sleep(3600)\n"
    made = backend.render(Script(filename="train.py", content=script.encode()), "seventh")
    [sent] = backend.send(
        dataclasses.replace(made, spec=dataclasses.replace(made.spec, health=HealthRules(every=0.4, least=6.0)))
    )

    def hangs() -> JobStatus | None:
        found = backend.status(sent.id)
        return found if found.findings else None

    live = Live(backend, [sent.id], Catalog.load())
    assert until(lambda: backend.status(sent.id).stages[-1].stepped, 60)
    live.look()
    [run] = live.runs
    assert (run.step, run.last_step) == (7, 40)
    assert run.left is not None, "it has just done a step"
    now = until(hangs, 120)
    assert now
    assert now.findings[0].kind == "hang"
    assert "(7 in this attempt): node 0 at step 7" in now.current.reason
    stepped = now.to_dict()["stages"][-1]["stepped"]
    assert now.current.started - 1 <= stepped <= now.findings[0].at

    monkeypatch.setattr("time.time", lambda: stepped + 700)
    follow.show(backend.status(sent.id, progress=True))
    assert "step 7 of 40: loss 1.6, last step 11 min ago\n" in capsys.readouterr().err
    [row] = follow._rows([one for one in backend.list() if one.id == sent.id], ())
    assert row[-1].endswith("; last step 11 min ago")
    live.look()
    console = Console(width=300, record=True, file=io.StringIO())
    for part in watch._job(live.statuses[0], live.runs, console, 30):
        console.print(part)
    seen = console.export_text()
    assert "last step 11 min ago   time left not known   cost " in seen
    for page in (
        report(live.runs, backend.cluster, Catalog.load(), 0),
        report(collect_all(backend, [sent.id]), backend.cluster, Catalog.load(), 0),
    ):
        assert "<dt>last step</dt><dd>11 min ago</dd>" in page
        assert "<dt>step</dt><dd>7<small> of 40</small></dd>" in page
        assert "expected" not in page
    backend.cancel(sent.id)


def test_a_member_of_an_array_that_hangs(backend: SlurmBackend) -> None:
    """Of its own."""
    script = TRAINS.replace('"FAULT", ""', '"FAULT", "hang" if os.environ["TRN_ARRAY_INDEX"] == "1" else ""')
    made = backend.render(Script(filename="train.py", content=script.encode(), array="0-1", env={"BAD": "0"}), "some")
    fast = dataclasses.replace(made.spec, health=HealthRules(every=0.4, least=3.0))
    [sent] = backend.send(dataclasses.replace(made, spec=fast))

    def hangs() -> Any:
        return [one.name for one in backend.status(sent.id).members if one.findings]

    assert until(hangs, 120) == ["1"]
    assert backend.status(f"{sent.id}").member("1").findings[0].kind == "hang"  # type: ignore[union-attr]
    backend.cancel(sent.id)
