"""The examples of a user's own jobs, as they are: with the real Kubeflow Trainer, and nodes from the stack's function."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.kubernetes import LocalKubernetes
from tests.eks.conftest import Open
from tests.support import until

pytestmark = pytest.mark.sweep

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"


@pytest.mark.parametrize(("name", "job"), [("jobset", "llama"), ("trainjob", "mistral")])
def test_it_gets_its_nodes_from_none_on(kubernetes: LocalKubernetes, opened: Open, name: str, job: str) -> None:
    scene, file = opened(f"example-{name}", 4), str(EXAMPLES / f"{name}.yaml")
    assert until(lambda: kubernetes.kubectl("apply", "-f", file).returncode == 0), kubernetes.kubectl(
        "apply", "-f", file
    ).stderr
    assert until(lambda: scene.workload(job))
    assert len(scene.runs(job, 2)) == 2
    assert (scene.most, scene.is_(job, "Admitted")) == (2, True)
    done = kubernetes.kubectl("delete", "-f", file, "--cascade=foreground")
    assert done.returncode == 0, done.stderr
    assert until(lambda: not scene.workload(job) and not scene.pods(job))
    scene.until_gone()
