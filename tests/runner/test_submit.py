"""Submissions to a real Slurm by the runner: each job once, whatever happens between."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm
from tests.runner.asking import CLUSTER, WAITS, Head, job, on_slurm, paused
from tests.support import until
from trainium_cdk.runner.requests import Error, Outcome, SubmitJobs, write_request
from trainium_cdk.runner.spec import NodeEnvironment, Place

__all__ = ["paused", "slurm"]
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "LOST", "TIMEOUT", "OUT_OF_MEMORY"}


@pytest.fixture(scope="module")
def head(slurm: LocalSlurm) -> Head:
    return Head(slurm)


def wait(head: Head, id: str, *expected: str) -> None:
    assert until(lambda: set(head.states(id)) <= ENDED, 120), head.states(id)
    assert head.states(id) == list(expected), head.status(id)


def test_a_job_is_laid_out_submitted_and_runs(head: Head) -> None:
    go = head.shared / "go-plain"
    made = job("plain-1", f'echo "$SECRET in $PWD"; cat ../files/data.bin; {WAITS}', str(go), variables={"SECRET": "s3cr3t"}, files={"data.bin": b"a\0\xff"})  # fmt: skip
    [sent] = head.submit(made)
    folder = head.jobs / "plain-1"
    assert sent == Outcome(sent.stages)
    assert list(sent.stages) == ["train"]
    assert json.loads((folder / "env.json").read_text()) == {"SECRET": "s3cr3t"}
    modes = {name: (folder / name).stat().st_mode & 0o777 for name in ("env.json", "job.json", "files")}
    assert modes == {"env.json": 0o600, "job.json": 0o600, "files": 0o700}
    assert b"s3cr3t" not in (folder / "job.json").read_bytes() + (folder / "submitted.json").read_bytes()
    assert (folder / "files/data.bin").read_bytes() == b"a\0\xff"
    record = json.loads((folder / "submitted.json").read_text())
    assert (record["numbers"], record["cluster"]) == (sent.stages, CLUSTER.identity)
    assert record["runner"] == str(head.runner)
    assert head.submit(made) == [replace(sent, existing=True)]
    go.write_text("0")
    wait(head, "plain-1", "COMPLETED")
    assert b"s3cr3t in " in (folder / "logs/train.0.log").read_bytes()
    assert not (folder / "env.json").exists(), "nothing starts it again"


def test_the_variables_of_a_job_go_however_it_ends(head: Head) -> None:
    secret = {"variables": {"SECRET": "s3cr3t"}}
    made = [
        job("ends-failed", "exit 3", **secret),
        job("ends-compile", "exit 3", precompile=True, **secret),
        job("ends-refused", fetches="/none", **secret),
        job("ends-array", 'exit "$SLURM_ARRAY_TASK_ID"', array="0-1", **secret),
    ]
    head.submit(*made)
    assert until(lambda: not any((head.jobs / one.id / "env.json").exists() for one in made), 120), "nobody has asked"
    assert head.states("ends-array") == ["COMPLETED", "FAILED"]
    number = head.status("ends-failed").stages[0].number
    head.slurm.run(["scontrol", "requeue", number])
    log = head.jobs / "ends-failed/logs/train.log"
    assert until(lambda: "its variables were deleted" in log.read_text(), 60), log.read_text()


def test_variables_stay_until_slurm_has_ended_the_job(head: Head) -> None:
    go = head.shared / "go-again"
    [sent, other] = head.submit(
        job("again-1", f'echo "with $SECRET"; {WAITS}', str(go), variables={"SECRET": "s3cr3t"}),
        job("killed-1", "sleep 600", variables={"SECRET": "s3cr3t"}),
    )
    kept, gone = head.jobs / "again-1/env.json", head.jobs / "killed-1/env.json"
    log = head.jobs / "again-1/logs/train.0.log"
    assert until(lambda: log.exists() and log.read_text().count("with s3cr3t") == 1, 60)
    assert until(lambda: head.states("killed-1") == ["RUNNING"], 60)
    head.slurm.run(["scontrol", "requeue", sent.stages["train"]])
    head.slurm.run(["scancel", "--signal=KILL", "--full", other.stages["train"]])
    assert until(lambda: set(head.states("killed-1")) <= ENDED, 60)
    assert not gone.exists(), "its batch script could not delete them"
    assert until(lambda: log.read_text().count("with s3cr3t") == 2, 300), log.read_text()
    assert kept.exists()
    go.write_text("0")
    wait(head, "again-1", "COMPLETED")


def test_what_compiles_and_trains_is_one_slurm_job(head: Head) -> None:
    go = head.shared / "go-compiles"
    [sent] = head.submit(job("compiles-1", WAITS, str(go), precompile=True))
    assert list(sent.stages) == ["precompile", "train"]
    assert len(set(sent.stages.values())) == 1
    assert until(lambda: head.states("compiles-1") == ["RUNNING", "PENDING"], 60)
    assert head.status("compiles-1").stages[1].reason == "waits for precompile"
    go.write_text("0")
    wait(head, "compiles-1", "COMPLETED", "COMPLETED")
    assert head.rows("compiles-1") == ["COMPLETED compiles-1:train"]
    first, then = head.status("compiles-1").stages
    assert first.started <= first.ended <= then.started <= then.ended
    head.submit(job("compiles-2", "exit 3", precompile=True))
    wait(head, "compiles-2", "FAILED", "CANCELLED")


def test_several_jobs_have_an_outcome_each(head: Head) -> None:
    made = [
        job("some-0"),
        job("some-1", slurm=on_slurm(queue="nowhere")),
        job("some-2", require=((Place("root"), "/efs/no 'such'"),)),
        job("some-3", files={"../x": b""}),
        job("some 4"),
        job("some-5", array="0-1"),
    ]
    for existing in (False, True):
        told = head.submit(*made)
        assert [one.existing for one in (told[0], told[5])] == [existing] * 2
        errors = [one.error.message for one in told[1:5]]
        assert {one.error.kind for one in told[1:5]} == {"refused"}
        assert "invalid partition specified: nowhere" in errors[0]
        assert errors[1] == "there is no /efs/no 'such' on the cluster"
        assert errors[2:] == [
            "'../x' is not a file name. Use one without slashes",
            "'some 4' is not the id of a job. Use letters, digits, dots and hyphens",
        ]
        left = {one.name for one in head.jobs.iterdir() if one.name.startswith("some")}
        assert left == {"some-0", "some-5"}
    wait(head, "some-5", "COMPLETED", "COMPLETED")
    assert [row for row in head.rows() if " some-" in row] == [
        "COMPLETED some-0:train",
        *["COMPLETED some-5:train"] * 2,
    ]


def test_a_submission_calls_slurm_once_for_each_of_its_slurm_jobs(head: Head, tmp_path: Path, paused: None) -> None:
    env = head.env
    for name in ("sbatch", "scancel", "scontrol", "sinfo", "squeue", "sacct"):
        env = {**env, "PATH": head.having(tmp_path, name, f"echo {name} >> {tmp_path}/used")["PATH"]}
    for made, used in (
        ([job("count-1")], ["sbatch"]),
        ([job(f"count-2-{i}") for i in range(5)], ["sbatch"] * 5),
        ([job("count-3", precompile=True)], ["sbatch"]),
        ([job("count-4", precompile=True, fetches="/none")], ["sbatch", "sbatch"]),
        ([job("count-1")], ["squeue"]),
    ):
        assert all(one.error is None for one in head.submit(*made, env=env))
        assert (tmp_path / "used").read_text().split() == used
        (tmp_path / "used").unlink()
    for id in ("count-1", "count-3", "count-4"):
        head.cancel(id)


def test_two_clients_submit_once(head: Head) -> None:
    found: list[Any] = []
    made = [job(f"rivals-{i}", precompile=True) for i in range(3)]
    clients = [threading.Thread(target=lambda: found.append(head.submit(*made))) for _ in range(3)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    stages = [[one.stages for one in told] for told in found]
    assert stages[0] == stages[1] == stages[2]
    assert sorted(one.existing for told in found for one in told) == [False] * 3 + [True] * 6
    for one in made:
        wait(head, one.id, "COMPLETED", "COMPLETED")
        assert len(head.rows(one.id)) == 1


def test_an_id_is_one_jobs(head: Head) -> None:
    head.submit(job("once-1"))
    for changed in (job("once-1", "false"), job("once-1", variables={"A": "b"}), job("once-1", files={"a": b""})):
        assert head.refused(changed, "taken") == (
            "once-1 already exists as another job. Use a new token, or submit the same job"
        )
    record = head.jobs / "once-1/submitted.json"
    content = record.read_text()
    record.write_text(content.replace(CLUSTER.identity, "i-old"))
    assert "once-1 is a job of another cluster on this file system (head node i-old). Use a new" in head.refused(job("once-1"), "taken")  # fmt: skip
    for damaged in ("", "{", "[" * 100_000, '{"numbers": 7}'):
        record.write_text(damaged)
        assert "once-1 already exists, and its record (submitted.json) is damaged" in head.refused(
            job("once-1"), "taken"
        )
    record.write_text(content)
    assert head.submit(job("once-1"))[0].existing


@pytest.mark.parametrize("dies_at", ["sbatch 1", "sbatch 3"])
def test_a_killed_request_of_several_jobs_is_completed_by_the_next(head: Head, tmp_path: Path, dies_at: str) -> None:
    count = dies_at.split()[1]
    dying = head.having(tmp_path, "sbatch", f"""echo x >> {tmp_path}/calls
if [ "$(wc -l < {tmp_path}/calls)" = {count} ]; then "$real" "$@" > /dev/null; kill -9 "$PPID"; sleep 1; fi""")  # fmt: skip
    made = [job(f"many-{count}-{i}") for i in range(4)]
    assert head.told(SubmitJobs(tuple(made)), env=dying) is None
    sent = head.submit(*made)
    assert [one.existing for one in sent] == [i < int(count) - 1 for i in range(4)]
    for one in made:
        wait(head, one.id, "COMPLETED")
        assert len(head.rows(one.id)) == 1


def test_a_request_that_is_told_to_end_finishes_the_job_that_it_has_begun(head: Head, tmp_path: Path) -> None:
    told = head.having(
        tmp_path, "sbatch", 'if [ ! -e "$0.once" ]; then : > "$0.once"; kill -TERM "$PPID"; sleep 0.3; fi'
    )
    made = [job(f"told-{i}") for i in range(3)]
    sent = head.submit(*made, env=told)
    assert not sent[0].existing
    assert [one.error for one in sent[1:]] == [Error("later", "it got signal 15, which ends it")] * 2
    assert [one.existing for one in head.submit(*made)] == [True, False, False]


AWAY = "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; exit 1"


def test_a_controller_that_does_not_answer_is_no_refusal(head: Head, tmp_path: Path) -> None:
    away = head.having(tmp_path, "sbatch", AWAY)
    made = [job(f"away-{i}") for i in range(3)]
    sent = head.submit(*made, env=away)
    assert [one.error.kind for one in sent] == ["later"] * 3
    assert "Unable to contact" in sent[2].error.message
    assert not list(head.jobs.glob("away-*")), "it is undone, and may be sent again"
    # it took the job, and its answer was lost; nor does it answer when that is undone
    lost = head.having(tmp_path, "sbatch", f'"$real" "$@" > /dev/null; {AWAY}')
    lost = {**lost, "PATH": head.having(tmp_path, "scancel", AWAY)["PATH"]}
    assert "Unable to contact" in head.refused(made[0], "later", env=lost)
    assert (head.jobs / "away-0").exists()
    assert [one.existing for one in head.submit(*made)] == [False] * 3
    for one in made:
        wait(head, one.id, "COMPLETED")
        assert len(head.rows(one.id)) == 1


def test_a_full_disk_refuses_a_job_and_leaves_nothing(head: Head) -> None:
    """A limit of the size of files, as its process has it: the file of the third job is larger."""
    made = [job("full-0"), job("full-1", files={"large": bytes(200_000)}), job("full-2")]
    limited = "import os, resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (100_000,) * 2); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", limited, *head.words()],
        input=json.dumps(write_request(CLUSTER, SubmitJobs(tuple(made)))),
        env=head.env,
        capture_output=True,
        text=True,
        check=True,
    )
    first, second, third = json.loads(done.stdout)["answer"]
    assert "File too large" in second["error"]["message"]
    assert not (head.jobs / "full-1").exists()
    assert "error" not in first
    assert "error" not in third
    assert [one.existing for one in head.submit(*made)] == [True, False, True]


def test_a_lost_stage_is_submitted_again_by_the_same_request_alone(head: Head, slurm: LocalSlurm) -> None:
    go = head.shared / "go-lost"
    made = job("lost-1", WAITS, str(go), precompile=True)
    [sent] = head.submit(made)
    # as if a controller that crashed had forgotten both: they have other names
    for number in sent.stages.values():
        slurm.run(["scontrol", "update", f"JobId={number}", "JobName=other"])
    assert head.states("lost-1") == ["LOST", "LOST"]
    assert {row.split()[1] for row in head.rows("lost-1")} == {"other"}, "asking submits nothing"
    slurm.run(["scancel", "--name=other"])
    [again] = head.submit(made)
    assert (again.existing, again.resubmitted) == (True, ("precompile", "train"))
    assert set(again.stages.values()).isdisjoint(sent.stages.values())
    assert head.submit(made) == [replace(again, resubmitted=())]
    go.write_text("0")
    wait(head, "lost-1", "COMPLETED", "COMPLETED")


def test_a_job_keeps_the_runner_that_it_began_with(head: Head, slurm: LocalSlurm, tmp_path: Path) -> None:
    made = job("kept-1", "sleep 60")
    [sent] = head.submit(made)
    assert until(lambda: head.states("kept-1") == ["RUNNING"], 60), head.status("kept-1")
    newer = Head(slurm)
    newer.runner = head.runner.with_name("newer.pyz")
    newer.runner.write_bytes(head.runner.read_bytes())
    kept = newer.submit(made)[0]
    seen = slurm.run(["scontrol", "show", "job", sent.stages["train"]]).stdout
    assert kept == replace(sent, existing=True), (seen, head.status("kept-1"))
    slurm.run(["scontrol", "update", f"JobId={sent.stages['train']}", "JobName=other"])
    [again] = newer.submit(made)
    assert again.resubmitted == ("train",)
    assert json.loads((head.jobs / "kept-1/submitted.json").read_text())["runner"] == str(head.runner)
    slurm.run(["scancel", "--name=other,kept-1:train"])


def test_a_job_after_another_one(head: Head) -> None:
    go = head.shared / "go-after"
    head.submit(job("first-1", WAITS, str(go)))
    head.submit(job("second-1", slurm=on_slurm(after="first-1")))
    assert head.states("second-1") == ["PENDING"]
    go.write_text("0")
    wait(head, "second-1", "COMPLETED")
    wait(head, "first-1", "COMPLETED")
    head.submit(job("third-1", precompile=True, slurm=on_slurm(after="first-1")))
    wait(head, "third-1", "COMPLETED", "COMPLETED")
    head.submit(job("fails-1", "exit 3"))
    wait(head, "fails-1", "FAILED")
    for after, message in (
        ("fails-1", "fails-1 has not completed, and does not run: this job would never begin. Remove --after, or submit fails-1 again"),
        ("none-1", "there is no job none-1 on this cluster. Give another one as --after"),
        ("../x", "Give another one as --after"),
        ("first-1/0", "first-1 has no member 0. Give another one as --after"),
    ):  # fmt: skip
        assert message in head.refused(job("never-1", slurm=on_slurm(after=after)))
        assert not (head.jobs / "never-1").exists()
    assert head.states("fails-1") == ["FAILED"], "a refusal leaves the other job alone"


def test_options_are_passed_on(head: Head, slurm: LocalSlurm) -> None:
    [sent] = head.submit(job("options-1", slurm=on_slurm(options=("--nodelist=compute1-dy-trn-3", "--begin=now+1000"))))
    shown = slurm.run(["scontrol", "-o", "show", "job", sent.stages["train"]]).stdout
    assert "ReqNodeList=compute1-dy-trn-3" in shown
    assert head.status("options-1").stages[0].state == "PENDING"
    assert "Reason=BeginTime" in slurm.run(["scontrol", "-o", "show", "job", sent.stages["train"]]).stdout
    # what fetches first need not wait for the time of the job
    options = on_slurm(options=("--begin=now+1000", f"--dependency=afterany:{sent.stages['train']}"))
    [both] = head.submit(job("options-2", fetches="/none", slurm=options))
    assert until(lambda: head.states("options-2")[0] == "FAILED", 60), head.status("options-2")
    shown = slurm.run(["scontrol", "-o", "show", "job", both.stages["train"]]).stdout
    assert f"afterok:{both.stages['prepare']}" in shown
    assert f"afterany:{sent.stages['train']}" in shown
    head.cancel("options-1")
    head.cancel("options-2")


def test_an_account_needs_accounting(head: Head) -> None:
    for given in ({"account": "vision"}, {"qos": "high"}):
        message = head.refused(job("account-1", slurm=on_slurm(**given)))
        assert "this cluster keeps no accounts, so that --account and --qos mean nothing" in message


def test_an_unfinished_bootstrap_is_reported(head: Head) -> None:
    made = job("venv-1", environment=NodeEnvironment(venv="~/not_there_yet", venv_required=True))
    assert head.refused(made).endswith(
        "/not_there_yet: the head node's bootstrap has not finished, or failed. Its log is /var/log/trn-bootstrap.log there"
    )


def test_a_file_system_that_is_not_mounted_is_reported(head: Head, tmp_path: Path) -> None:
    """A plain folder in its place would be a disk that the compute nodes do not see."""
    env = {k: v for k, v in head.env.items() if k != "TRN_SHARED_ROOT"}
    cluster = type(CLUSTER)(**{**vars(CLUSTER), "shared_dir": str(tmp_path)})
    told = head.told(SubmitJobs((job("local-1"),)), cluster, env)
    assert told["error"]["message"].startswith(f"{tmp_path} is not mounted on this machine")
    assert list(tmp_path.iterdir()) == []


def test_members_make_their_own_folders(head: Head) -> None:
    """A thousand members cost a submission no more than one job."""
    go = head.shared / "go-members"
    made = job("array-1", f"echo I am $TRN_ARRAY_INDEX; {WAITS}", str(go), array="0-999%2", files={"a": bytes(1000)})
    head.submit(made)
    assert not list((head.jobs / "array-1").glob("[0-9]*"))
    assert sum(1 for _ in (head.jobs / "array-1").rglob("*")) < 15
    assert until(lambda: (head.jobs / "array-1/0/logs/train.log").exists(), 60)
    assert until(lambda: "I am 0" in (head.jobs / "array-1/0/logs/train.log").read_text(), 60)
    [again] = head.submit(made)
    assert (again.existing, again.resubmitted) == (True, ())
    assert head.submit(job("after-member", slurm=on_slurm(after="array-1/1")))[0].stages
    assert head.states("after-member") == ["PENDING"]
    head.cancel("array-1/700")
    states = head.states("array-1")
    assert (states[700], states[699], states[0]) == ("CANCELLED", "PENDING", "RUNNING")
    go.write_text("0")
    wait(head, "after-member", "COMPLETED")
    head.cancel("array-1")
    assert set(head.states("array-1")) <= {"COMPLETED", "CANCELLED"}
