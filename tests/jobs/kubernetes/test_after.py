"""`--after JOB` on a real JobSet and Kueue: as on Slurm (tests/jobs/test_after.py)."""

from __future__ import annotations

import itertools

import pytest

from tests.jobs.kubernetes.conftest import Running, let_it_prepare, script
from tests.support import until
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend
from trainium_cdk.errors import SubmitError


@pytest.mark.sweep
def test_a_job_after_another_one(backend: KubernetesBackend, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    go = running.shared / "after-go"
    waits = b'until [ -e /efs/after-go ]; do sleep 0.1; done; exit "$(cat /efs/after-go)"'
    first = backend.submit(script(waits, nodes=1, cache="one", name="one"), "after1").id
    with monkeypatch.context() as prepares:
        let_it_prepare(prepares)
        second = backend.submit(script(b"true", nodes=1, cache="two", after=first, name="two"), "after2").id
        lost = backend.submit(script(b"true", nodes=1, cache="lost", after=first, name="lost"), "after-lost").id
    plain = backend.submit(script(b"true", nodes=1, cache="plain", after=first, name="plain"), "after3").id
    assert until(lambda: backend.status(second).stages[0].state == "COMPLETED"), "prepare does not wait"
    backend.api.delete("BatchJob", f"{lost}-prepare")
    assert until(lambda: backend.status(lost).done), "it would wait for ever"
    assert backend.status(lost).stages[0].reason == f"{lost}-prepare did not complete: it was deleted"
    for id in (second, plain):
        [shown] = [job for job in backend.list() if job.id == id]
        assert (shown.state, shown.current.reason) == ("PENDING", f"waits for {first}")
    go.write_text("0")
    one, two = backend.wait(first, 600), backend.wait(second, 600)
    assert (one.ok, two.ok, backend.wait(plain, 600).ok) == (True, True, True)
    assert (two.stages[-1].started or 0) >= (one.stages[-1].ended or 0)
    third = backend.submit(script(b"true", nodes=1, cache="three", after=first, name="three"), "after4").id
    assert backend.wait(third, 600).ok, "that one has completed already"
    go.unlink()
    failing = backend.submit(script(waits, nodes=1, cache="four", restarts=0, name="four"), "after5").id
    chain = [failing]
    for name in ("five", "six"):
        chain.append(
            backend.submit(script(b"true", nodes=1, cache=name, after=chain[-1], name=name), f"after-{name}").id
        )
    go.write_text("3")
    assert backend.wait(failing, 600).state == "FAILED"
    for before, id in itertools.pairwise(chain):
        never = backend.wait(id, 600)
        assert never.state == "CANCELLED"
        assert never.current.reason.startswith(f"did not run: {before} did not complete")
    for after, message in {failing: "has not completed, and does not run", "none-1": "there is no job none-1"}.items():
        with pytest.raises(SubmitError, match=message):
            backend.submit(script(b"true", nodes=1, cache="seven", after=after, name="seven"))
