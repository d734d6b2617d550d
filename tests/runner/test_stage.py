"""Stages on a real Slurm: what their programs get, and how they end."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm as slurm
from tests.runner.stages import FILES, JOB, Jobs, Sent, program, shell
from tests.support import begins_again, swept, until
from trainium_cdk.runner import records
from trainium_cdk.runner.slurm import seconds
from trainium_cdk.runner.spec import Checkpoints, NodeEnvironment, Place, Rule, StageSpec

SHOW = """
import json, os, sys
print("told " + json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]), flush=True)
"""


@pytest.fixture
def jobs(slurm: LocalSlurm, tmp_path: Path) -> Iterator[Jobs]:
    yield Jobs(slurm, tmp_path)
    slurm.run(["scancel", f"--user={slurm.node_env()['USER']}"])


def shown(log: str) -> list[Any]:
    return [json.loads(line.partition("told ")[2]) for line in log.splitlines() if "told " in line]


def test_what_a_program_gets(jobs: Jobs) -> None:
    """Words and variables of a user stay what they are, whatever a shell would make of them."""
    odd = "a'\"b\\ $HOME $(id) `id` \n é *"
    words = (
        "python3",
        (FILES, "/show.py"),
        odd,
        (Place("node"), "/", Place("nodes")),
        (Place("workers"),),
        ("--cache=", Place("cache")),
    )
    made = program(
        *words, variables={"KIND": (JOB, "/x"), "OWN": "of the kind", "MASTER_PORT": "2022"}, folders=((JOB, "/a b"),)
    )
    sent = jobs.train(
        made,
        2,
        files={"show.py": SHOW.encode()},
        variables={"OWN": odd, "NEURON_CC_FLAGS": "-O1"},
        environment=NodeEnvironment(cores=32, cache="mine"),
    )
    assert sent.ended().code == 0, sent.log()
    told = [*shown(sent.log("train.0")), *shown(sent.log("train.1"))]  # srun cuts long lines
    for node, (got, folder, env) in enumerate(told):
        host = env["SLURMD_NODENAME"]
        cache = f"{jobs.trn}/neuron_cache/mine/{host}"
        assert got == [odd, f"{node}/2", "64", f"--cache={cache}"]
        assert (folder, env["OWN"], env["KIND"]) == (str(sent.folder / "work"), odd, f"{sent.folder}/x")
        assert (env["NNODES"], env["NODE_RANK"], env["NPROC_PER_NODE"]) == ("2", str(node), "32")
        assert env["NEURON_CC_FLAGS"] == f"--cache_dir={cache} -O1"
        assert env["MASTER_ADDR"] == "127.0.0.1"  # of NodeAddr: names of nodes need not resolve yet
        assert Path(cache).is_dir()
    assert (sent.folder / "a b").is_dir()
    begins = rf"^trn: train: Slurm job {sent.numbers['train']} on compute1-\S+, \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"
    assert re.search(begins, sent.log(), re.MULTILINE)
    assert "0: told" in sent.log()
    assert sent.left() == "COMPLETED"


def test_each_of_several_processes_has_its_rank(jobs: Jobs) -> None:
    sent = jobs.submit(
        jobs.job(StageSpec("train", 2, shell('echo "rank $RANK $LOCAL_RANK $WORLD_SIZE $NODE_RANK"'), processes=2))
    )
    assert sent.ended().code == 0, sent.log()
    assert sorted(re.findall(r"rank (.*)", sent.log())) == ["0 0 4 0", "1 1 4 0", "2 0 4 1", "3 1 4 1"]


@pytest.mark.parametrize(
    ("script", "code", "last"),
    [
        ("echo begins; exit 3", 3, "begins"),
        ("echo boom >&2; kill -9 $$", 137, r"killed by signal 9 \(SIGKILL\)"),
        ("exec /no/such/program", 127, "No such file|not found"),
    ],
)
def test_a_program_that_fails(script: str, code: int, last: str, jobs: Jobs) -> None:
    sent = jobs.train(shell(f'if [ "$NODE_RANK" = 1 ]; then {script}; else sleep 600; fi'), 2)
    state = sent.ended()
    assert (state.code, state.failed_node, state.why) == (code, 1, "")
    assert f"trn: node 1 failed first; its own log is {sent.folder}/logs/train.1.log" in sent.log()
    [record] = (sent.folder / "state").glob("train.*.failed.json")
    assert re.search(last, json.loads(record.read_text())["last"])
    assert sent.left() == "FAILED"


def test_a_program_that_there_is_not(jobs: Jobs) -> None:
    sent = jobs.train(program("no-such-program"))
    assert (sent.ended().code, "trn: no-such-program cannot be started: No such file" in sent.log()) == (64, True)
    assert "Traceback" not in sent.log()


def test_a_place_that_there_is_not(jobs: Jobs) -> None:
    sent = jobs.train(program("echo", (Place("moon"),)))
    assert (sent.ended().code, "the job names a place 'moon' that this node does not have" in sent.log()) == (64, True)


def test_a_job_that_is_cancelled_saves_its_state(jobs: Jobs) -> None:
    """Once: Slurm sends SIGTERM to the program, and the runner does not."""
    save = "import signal, time, sys\ndef save(*_):\n    print('saves', flush=True); time.sleep(1); print('has saved', flush=True); sys.exit(0)\n"
    save += "signal.signal(signal.SIGTERM, save)\nprint('begins', flush=True)\ntime.sleep(600)\n"
    sent = jobs.train(program("python3", (FILES, "/save.py")), files={"save.py": save.encode()})
    sent.says("begins")
    jobs.slurm.run(["scancel", sent.numbers["train"]])
    state = sent.ended()
    assert (state.code, state.why) == (143, "CANCELLED")
    assert sent.log("train.0").count("saves") == 1
    assert sent.log("train.0").endswith("has saved\n")
    assert not list((sent.folder / "state").glob("train.*.done"))
    assert sent.left() == "CANCELLED"


@pytest.mark.sweep
def test_a_job_whose_time_is_over(jobs: Jobs) -> None:
    """Slurm's limit is in minutes."""
    sent = jobs.submit(jobs.job(StageSpec("train", program=shell("sleep 600"), seconds=1)))
    state = sent.ended()
    assert (state.code, state.why, sent.left()) == (143, "TIMEOUT", "TIMEOUT")


@pytest.mark.parametrize("whom", ["the batch script", "the runner on a node"])
def test_a_signal_is_no_success(whom: str, jobs: Jobs) -> None:
    sent = jobs.train(shell('echo "begins $PPID"; exec sleep 600'))
    sent.says("begins")
    if whom == "the batch script":
        jobs.slurm.run(["scancel", "--batch", "--signal=USR1", sent.numbers["train"]])
    else:
        runner = int(re.findall(r"begins (\d+)", sent.log())[0])
        [child] = Path(f"/proc/{runner}/task/{runner}/children").read_text().split()
        os.kill(runner, 15)
        os.kill(int(child), 9)
    assert sent.ended().code == 143
    assert sent.left() == "FAILED"
    assert not list((sent.folder / "state").glob("train.*.done"))


def test_what_no_submission_has_recorded_does_not_run(jobs: Jobs) -> None:
    sent = jobs.submit(jobs.job(StageSpec("train", program=shell("echo trains"))), record=False)
    jobs.record(sent, train="999999")
    assert sent.left() == "FAILED"
    assert "is not a stage of this job: its submission was interrupted. Nothing was run" in sent.log()
    assert sent.state() is None


@pytest.mark.parametrize("older", [False, True])
def test_a_record_that_comes_late(older: bool, jobs: Jobs) -> None:
    """Also that of a stage which Slurm had lost: until then, the record has the number of the lost one."""
    sent = jobs.submit(jobs.job(StageSpec("train", program=shell("echo trains"))), record=False)
    if older:
        jobs.record(sent, train="0")
    until_running(jobs, sent)
    if older:
        time.sleep(6)
    jobs.record(sent)
    assert sent.ended().code == 0


def until_running(jobs: Jobs, sent: Any) -> None:
    while "RUNNING" not in jobs.slurm.run(["squeue", "-h", "-j", sent.numbers["train"], "-o", "%T"]).stdout:
        pass


def test_what_has_completed_does_not_run_again(jobs: Jobs) -> None:
    """As after a crash of Slurm's controller, which starts it again."""
    sent = jobs.train(shell("echo trains; sleep 1"))
    assert sent.ended().code == 0
    assert sent.left() == "COMPLETED"
    again = jobs.submit(jobs.job(StageSpec("train", program=shell("echo trains"))), record=False)
    number = again.numbers["train"]
    (again.folder / "state/train.json").write_text(
        json.dumps({"state": "ended", "number": number, "code": 0, "at": 1.0, "nodes": "x"})
    )
    jobs.record(again)
    assert again.left() == "COMPLETED"
    assert "train has already completed; Slurm's controller crashed and forgot that" in again.log()
    assert "\ntrains" not in again.log()


def test_what_was_cancelled_does_not_run_again(jobs: Jobs) -> None:
    sent = jobs.submit(jobs.job(StageSpec("train", program=shell("echo trains"))), record=False)
    (sent.folder / "cancelled").touch()
    jobs.record(sent)
    assert sent.left() == "CANCELLED"
    assert "this job was cancelled; Slurm's controller crashed and forgot that" in sent.log()
    assert "\ntrains" not in sent.log()


def test_a_node_that_is_lost_restarts_the_stage(jobs: Jobs) -> None:
    sent = jobs.train(
        shell('echo "attempt ${SLURM_RESTART_COUNT:-0}"; [ "${SLURM_RESTART_COUNT:-0}" = 1 ] || sleep 600'), 2
    )
    sent.says("attempt 0")
    jobs.slurm.run(["scontrol", "requeue", sent.numbers["train"]])
    assert begins_again(jobs.slurm, sent.numbers["train"], lambda: "attempt 1" in sent.log()), sent.log()
    state = sent.ended()
    while state.attempt == 0:
        state = sent.ended()
    assert (state.code, state.attempt) == (0, 1)


@pytest.mark.parametrize(("which", "in_order"), swept([(0, False), (-1, True)], (-1, True)))
def test_a_node_that_dies_restarts_the_stage(which: int, in_order: bool, jobs: Jobs) -> None:
    """At once, or as in a shutdown: its daemon first, then its processes, before Slurm knows."""
    slurm, attempt = (
        jobs.slurm,
        'echo "attempt ${SLURM_RESTART_COUNT:-0}"; [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || exec sleep 600',
    )
    sent = jobs.train(shell(attempt), 2)
    for rank in (0, 1):
        sent.says(f"{rank}: attempt 0")
    node = slurm.run(["scontrol", "show", "hostnames", sent.running().nodes]).stdout.split()[which]
    if in_order:
        slurm.end_node(node)
        sent.says("a node is shutting down: waiting for Slurm to restart train")
        assert sent.running().attempt == 0
    slurm.kill_node(node)
    slurm.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=hardware"])
    slurm.replace_node(node)
    assert begins_again(slurm, sent.numbers["train"], lambda: "Slurm job" in sent.log().partition("attempt 0")[2])
    sent.says("attempt 1")
    assert sent.left() == "COMPLETED"
    assert (sent.ended().code, sent.ended().attempt) == (0, 1)


def test_a_controller_that_crashes_ends_no_stage(jobs: Jobs, tmp_path: Path) -> None:
    go = tmp_path / "go"
    sent = jobs.train(shell(f"echo begins; until [ -e {go} ]; do sleep 0.1; done; echo ends"), 2)
    sent.says("1: begins")
    jobs.slurm.run(["scontrol", "show", "job"])
    jobs.slurm.kill_controller(save=True)
    go.touch()
    assert sent.ended().code == 0, sent.log()
    jobs.slurm.start_controller()
    assert sent.left() == "COMPLETED"


def test_restarts_end(jobs: Jobs) -> None:
    sent = jobs.train(shell("sleep 600"), slurm=type(jobs.job().slurm)("compute1", "compute1", "i-1", restarts=1))  # type: ignore[misc]
    number = sent.numbers["train"]
    sent.running()
    jobs.slurm.run(["scontrol", "requeue", number])
    again = begins_again(
        jobs.slurm, number, lambda: (now := sent.state()) and (now.state, now.attempt) == ("running", 1)
    )
    assert again, sent.log()
    jobs.slurm.run(["scontrol", "requeue", number])
    ended = "restarted 1 times already, the most that --restarts allows"
    assert begins_again(jobs.slurm, number, lambda: ended in sent.log()), sent.log()
    assert sent.left() == "FAILED"


def test_all_nodes_go_on_from_the_same_checkpoint(jobs: Jobs) -> None:
    kept = Checkpoints("output", pattern="step-*", last="done", forget="others", same={"kind": "script", "tp": "8"})
    made = shell('echo "from $0"', resume=((Place("checkpoint"),),))
    job = jobs.job(StageSpec("train", 2, made), checkpoints=kept)
    output = jobs.trn / "jobs" / job.id / "output"
    for name, content in (("step-9", "x"), ("step-10", "x"), ("step-11", "")):
        (output / name).mkdir(parents=True)
        (output / name / "done").write_text(content)
    sent = jobs.submit(job)
    assert sent.ended().code == 0, sent.log()
    assert sent.log().count(f"from {output}/step-10\n") == 2
    assert sorted(one.name for one in output.iterdir()) == ["step-10", "trn-checkpoints"]
    assert (output / "trn-checkpoints").read_text() == "kind script\ntp 8\n"


PRECOMPILES = 'echo "Total graphs: 3"; echo "Total failed compilations: $FAILED"; echo "on $SLURM_JOB_ID"'


@pytest.mark.parametrize("failed", [0, 2])
def test_what_has_compiled_trains_in_the_same_allocation(failed: int, jobs: Jobs) -> None:
    job = jobs.job(
        StageSpec("precompile", 2, shell(PRECOMPILES)),
        StageSpec("train", 2, shell('echo "trains on $SLURM_JOB_ID"')),
        variables={"FAILED": str(failed)},
    )
    sent = jobs.submit(job)
    number = sent.numbers["train"]
    assert sent.numbers == {"precompile": number, "train": number}
    compiled = sent.ended("precompile")
    assert f"on {number}" in sent.log("precompile")
    assert sent.log("precompile").startswith(f"trn: precompile: Slurm job {number} on {compiled.nodes}, ")
    if failed:
        assert compiled.code == 65
        said = f"graphs failed to compile on 2 node(s): see {sent.folder}/logs/precompile.*.log"
        assert said in sent.log("precompile")
        assert (sent.left(), sent.state()) == ("FAILED", None)
        return
    assert sent.ended().code == 0
    assert compiled.nodes == sent.ended().nodes
    assert sent.log().startswith(f"trn: train: Slurm job {number} on {compiled.nodes}, ")
    assert f"trains on {number}" in sent.log()
    assert "Total graphs" not in sent.log()
    assert sent.left() == "COMPLETED"


@pytest.mark.parametrize("moved", [False, True])
def test_nodes_that_have_compiled_do_not_compile_again(moved: bool, jobs: Jobs) -> None:
    """After a requeue the stage precompile runs again exactly where its record has other nodes."""
    again = 'echo "attempt ${SLURM_RESTART_COUNT:-0}"; [ "${SLURM_RESTART_COUNT:-0}" = 1 ] || sleep 600'
    sent = jobs.submit(
        jobs.job(StageSpec("precompile", 1, shell("echo compiles")), StageSpec("train", 1, shell(again)))
    )
    sent.says("attempt 0")
    number, nodes = sent.numbers["train"], sent.running().nodes
    jobs.slurm.run(["scontrol", "requeue", number])
    other = ["ExcNodeList=" + nodes] if moved else ["ReqNodeList=" + nodes]
    assert until(lambda: jobs.slurm.run(["scontrol", "update", f"JobId={number}", *other]).returncode == 0, 60)
    assert begins_again(jobs.slurm, number, lambda: "attempt 1" in sent.log()), sent.log()
    assert (sent.left(), sent.ended().code) == ("COMPLETED", 0)
    assert (sent.ended().nodes != nodes) is moved
    assert sent.ended("precompile").nodes == sent.ended().nodes
    assert sent.log("precompile").count(": compiles\n") == 1 + moved


def left(sent: Sent) -> int:
    """The seconds that Slurm has for it."""
    return seconds(sent.slurm.run(["squeue", "-h", "-j", sent.numbers["train"], "-o", "%L"]).stdout) or 0


def test_the_time_limit_is_counted_from_the_beginning_of_the_training(jobs: Jobs, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = shell(f"until [ -e {go} ]; do sleep 0.1; done")
    sent = jobs.submit(
        jobs.job(
            StageSpec("precompile", 1, waits), StageSpec("train", 1, shell("echo trains; sleep 600"), seconds=1800)
        )
    )
    sent.running("precompile")
    assert left(sent) > 8000
    go.touch()
    sent.says("0: trains")
    assert 1700 < left(sent) <= 1860


@pytest.mark.sweep
def test_slurm_itself_ends_a_training_that_has_compiled_and_takes_too_long(jobs: Jobs) -> None:
    sent = jobs.submit(
        jobs.job(StageSpec("precompile", 1, shell("true")), StageSpec("train", 1, shell("sleep 600"), seconds=1))
    )
    state = sent.ended()
    assert (state.code, state.why, sent.left()) == (143, "TIMEOUT", "TIMEOUT")


def test_what_slurm_starts_before_prepare_has_completed_does_not_run(jobs: Jobs) -> None:
    """A controller that crashed takes a number that it has forgotten for that of a job that has completed (22.05)."""
    sent = jobs.submit(jobs.job(StageSpec("train", program=shell("echo trains"))), record=False)
    records.write_state(sent.folder, "prepare", records.State("ended", "999999", code=64))
    jobs.record(sent, prepare="999999")
    assert sent.left() == "FAILED"
    assert "trn: prepare has not completed; Slurm's controller crashed and forgot that this waits for it" in sent.log()
    assert ("trains" in sent.log().splitlines(), sent.state()) == (False, None)


def test_members_of_an_array(jobs: Jobs) -> None:
    said = 'echo "I am $TRN_ARRAY_INDEX of $TRN_ARRAY_COUNT in $(pwd)"; [ "$TRN_ARRAY_INDEX" != 4 ]'
    sent = jobs.submit(jobs.job(StageSpec("train", program=shell(said)), array="0,4%2"))
    for index, code in (("0", 0), ("4", 1)):
        member = type(sent)(jobs.slurm, sent.folder / index, sent.numbers)
        assert member.ended().code == code
        assert member.state().number == sent.numbers["train"]  # type: ignore[union-attr]
        assert f"I am {index} of 2 in {sent.folder}/{index}/work" in member.log()
        assert f"I am {index} of 2" in member.log("train.0")


@pytest.mark.parametrize(
    ("checks", "code", "said"),
    [("refuse", 64, "driver 2.28.0.0 and runtime"), ("report", 0, "driver 2.28.0.0 and runtime"), ("", 0, "")],
)
def test_versions_that_do_not_work_together(checks: str, code: int, said: str, jobs: Jobs, tmp_path: Path) -> None:
    place = tmp_path / "sys/module/neuron"
    place.mkdir(parents=True)
    (place / "version").write_text("2.28.0.0\n")
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\necho 2.30.51.0-abc\n")
    (tmp_path / "dpkg-query").chmod(0o755)
    rule = Rule(("2.28", ""), ("", "2.33"), "use another image")
    env = NodeEnvironment(cores=2, rules=(rule,), checks=checks)
    job = jobs.job(StageSpec("train", program=shell("echo trains")), environment=env)
    path = f"{tmp_path}:{jobs.slurm.node_env()['PATH']}"
    sent = jobs.submit(job, env={"TRN_SYS_ROOT": str(tmp_path), "PATH": path})
    assert sent.ended().code == code
    assert (said in sent.log(), "trains" in sent.log()) == (True, code == 0)
    if checks:
        assert "2.30.51.0 are not compatible: use another image" in sent.log()


def test_a_virtual_environment_that_there_is_not(jobs: Jobs) -> None:
    sent = jobs.train(shell("echo trains"), environment=NodeEnvironment(venv="~/no-such", venv_required=True))
    assert (sent.ended().code, "trn: there is no virtual environment at " in sent.log()) == (64, True)


def test_a_virtual_environment(jobs: Jobs) -> None:
    place = Path(jobs.slurm.node_env()["HOME"]) / "own"
    (place / "bin").mkdir(parents=True)
    (place / "bin/activate").touch()
    (place / "bin/mine").write_text('#!/bin/sh\necho "in $VIRTUAL_ENV"\n')
    (place / "bin/mine").chmod(0o755)
    sent = jobs.train(program("mine"), environment=NodeEnvironment(venv="~/own", venv_required=True))
    assert sent.ended().code == 0, sent.log()
    assert f"in {place.resolve()}" in sent.log()


def test_what_is_prepared(jobs: Jobs) -> None:
    sent = jobs.submit(jobs.job(StageSpec("prepare"), StageSpec("train", program=shell("echo trains"))))
    assert sent.ended("prepare").code == 0, sent.log("prepare")
    assert sent.ended().code == 0
    assert sent.left("prepare") == "COMPLETED"


def test_a_disk_on_which_it_cannot_begin_is_told(jobs: Jobs) -> None:
    """Before it can write down anything of itself."""
    sent = jobs.submit(jobs.job(StageSpec("train", program=shell("echo trains"))), record=False)
    (sent.folder / "state").rmdir()
    (sent.folder / "state").touch()
    jobs.record(sent)
    assert sent.left() == "FAILED"
    assert re.search(r"^trn: .*state/.*: Not a directory", sent.log(), re.MULTILINE)
    assert "Traceback" not in sent.log()


def test_an_end_that_cannot_be_recorded_does_not_fail_the_job(jobs: Jobs) -> None:
    sent = jobs.train(shell("rm ../state/train.json; mkdir ../state/train.json"))
    assert sent.left() == "COMPLETED"
    assert "trn: its end cannot be recorded: " in sent.log()


def test_a_success_that_cannot_be_recorded_is_none(jobs: Jobs) -> None:
    sent = jobs.train(shell('ln -s /no/such/file "../state/train.$SLURM_JOB_ID-0.0.done"'))
    assert sent.left() == "FAILED"
    assert "its success cannot be recorded" in sent.log()
