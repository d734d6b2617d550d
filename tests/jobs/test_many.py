"""Several jobs in one request, on a real Slurm: as many as were asked for, each once, whatever fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import counting, fleet, make_cluster, with_program
from tests.jobs.test_slurm import log, script
from trainium_cdk.client.jobs.slurm.transport import LocalTransport, Result
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import BertLarge, SlurmBackend, SubmitError, TransportError, UnknownJob


def comments(slurm: LocalSlurm, token: str) -> list[str]:
    """The ids of all Slurm jobs of a token that were not cancelled."""
    told = slurm.run(["squeue", "-h", "-a", "-t", "all", "-o", "%T %k"]).stdout.splitlines()
    return sorted(line.split("trn:")[1] for line in told if f"-{token}-" in line and not line.startswith("CANCELLED"))


def test_what_is_refused_leaves_the_others_submitted_and_nothing_of_itself(slurm: LocalSlurm, shared: Path) -> None:
    """One job is refused by its requirements, one by Slurm; one that compiles and an array are among the others."""
    cluster = make_cluster(fleet(nodes=4), fleet("trn1.2xlarge", queue="nowhere"))
    backend = SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))
    jobs = [
        script("echo first", queue="compute1"),
        script("true", queue="nowhere"),
        script("echo it\\'s one job", queue="compute1", precompile=True),
        BertLarge(phase=2, checkpoint="/efs/ckpt_7.pt", queue="compute1"),
        script("echo $TRN_ARRAY_INDEX", queue="compute1", array="0-1", env={"A": "b'\n)"}),
    ]
    for existing in (False, True):
        with pytest.raises(SubmitError) as some:
            backend.submit_many(jobs, "several")
        assert [one.id for one in some.value.submitted] == ["run-several-0", "run-several-2", "run-several-4"]
        assert {one.existing for one in some.value.submitted} == {existing}
        first, nowhere, checkpoint = str(some.value).splitlines()
        assert first == "2 of 5 jobs were refused; the others are submitted"
        assert (
            "run-several-1 was not submitted to trn-slurm: sbatch: error: invalid partition specified: nowhere"
            in nowhere
        )
        assert (
            "bert-large-several-3 was not submitted to trn-slurm: there is no /efs/ckpt_7.pt on the cluster"
            in checkpoint
        )
        assert "Nothing of it is left there" in nowhere
        left = {folder.name for folder in (shared / "trn/jobs").iterdir()}
        assert not left & {"run-several-1", "bert-large-several-3"}
    for one in some.value.submitted:
        assert backend.wait(one.id, 600).ok
    assert comments(slurm, "several") == ["run-several-0", "run-several-2", *["run-several-4"] * 2]
    assert "it's one job" in log(backend, "run-several-2")


def test_several_jobs_start_no_process_twice_that_one_can_do(slurm: LocalSlurm, tmp_path: Path) -> None:
    with counting(slurm, tmp_path) as (backend, used):
        sent = backend.submit_many([script("true", name=f"job{i}") for i in range(5)])
        assert used.read_text().split() == ["sbatch"] * 5
    assert len({one.stages["train"] for one in sent}) == 5
    for one in sent:
        backend.cancel(one.id)


def test_a_killed_request_is_completed_by_the_next(backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path) -> None:
    """The runner is killed just after Slurm has accepted the third job."""
    dying = with_program(slurm, tmp_path, "sbatch", f"""for word; do case $word in --job-name=*) echo "${{word%:train}}" >> {tmp_path}/calls ;; esac; done
if [ "$(wc -l < {tmp_path}/calls)" = 3 ]; then "$real" "$@" > /dev/null; kill -9 $PPID; sleep 1; fi""")  # fmt: skip
    sent = SlurmBackend(backend.cluster, dying).submit_many([script("true") for _ in range(5)], "dying")
    assert [int(name[-1]) for name in (tmp_path / "calls").read_text().split()] == [0, 1, 2, 2, 3, 4]
    for one in sent:
        assert backend.wait(one.id, 600).ok
    assert comments(slurm, "dying") == [one.id for one in sent]


def test_two_clients_and_a_lost_answer_submit_each_job_once(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    class Loses(LocalTransport):
        answered = False

        def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
            result = super().ask(cluster, request, timeout, private)
            if not self.answered:
                self.answered = True
                raise TransportError("the answer was lost")
            return result

    jobs = [script("true") for _ in range(6)]
    found = []

    def submit() -> None:
        found.append(SlurmBackend(backend.cluster, Loses(env=slurm.node_env())).submit_many(jobs, "rivals"))

    clients = [threading.Thread(target=submit) for _ in range(2)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    first, second = found
    assert [one.stages for one in first] == [one.stages for one in second]
    assert all(one.existing for one in (*first, *second))
    for one in first:
        assert backend.wait(one.id, 600).ok
    assert comments(slurm, "rivals") == [one.id for one in first]
    with pytest.raises(SubmitError, match="rivals-0 already exists as another job") as other:
        backend.submit_many([script("false")], "rivals")
    assert "left there" not in str(other.value)


def test_a_request_that_is_refused_as_a_whole_names_each_job(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    env = {k: v for k, v in slurm.node_env().items() if k != "TRN_SHARED_ROOT"}
    unmounted = SlurmBackend(backend.cluster, LocalTransport(env=env))
    with pytest.raises(SubmitError, match=r"(?s)2 of 2 jobs.*whole-0 .* is not mounted.*whole-1 .* is not mounted"):
        unmounted.submit_many([script("true"), script("true")], "whole")
    with pytest.raises(UnknownJob):
        backend.status("run-whole-0")
