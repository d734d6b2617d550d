"""The files of a cluster from before each namespace had a folder on EFS: the example moves them, as docs/guides/change.md says."""

from __future__ import annotations

import os

import pytest
from ruamel.yaml import YAML

from sandbox.kubernetes.api import path_of
from sandbox.paths import HOME
from tests.jobs.kubernetes.conftest import EFS, Running, apply
from tests.support import need, until
from trainium_cdk import settings
from trainium_cdk.eks import manifests
from trainium_cdk.eks.installation import Installation
from trainium_cdk.jobs.kubernetes.names import MANAGED_BY
from trainium_cdk.outputs.eks import JOB_USER

EXAMPLE = HOME / "examples/kubernetes/own-folder.yaml"


@pytest.mark.parametrize("again", [False, True])
def test_the_example_moves_all_files_and_their_owners(running: Running, again: bool) -> None:
    need(os.geteuid() == 0, "only root gives files away")
    kubernetes, root = running.kubernetes, running.kubernetes.directory / f"volumes/training-efs-{EFS.id}"
    apply(kubernetes, manifests.volumes(Installation.of(settings.load()), [EFS], {}))
    for path, user in {
        "trn/jobs/a/log": JOB_USER,
        "my data/.x": 0,
        ".hidden": 7,
        "trn-teams/speech/b": JOB_USER,
    }.items():
        file = root / (f"again-{path}" if again and "teams" not in path else path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
        os.chown(file, user, user)
    wanted = YAML(typ="safe").load(EXAMPLE)
    wanted["metadata"]["labels"] = {
        "app.kubernetes.io/managed-by": MANAGED_BY
    }  # the local Kubernetes runs the pods of `trn`
    apply(kubernetes, [wanted])
    pod = path_of("v1", "Pod", "own-folder", namespace="training")

    def ended() -> bool:
        return kubernetes.api().get(pod)["status"].get("phase") in ("Succeeded", "Failed")

    assert until(ended, 90)
    assert kubernetes.api().get(pod)["status"]["phase"] == "Succeeded", kubernetes.kubectl(
        "logs", "own-folder", "-n", "training"
    )
    assert kubernetes.kubectl("delete", "-f", str(EXAMPLE)).returncode == 0
    assert [one.name for one in root.iterdir()] == ["trn-teams"]
    own = root / "trn-teams/training"
    names = ["trn", "my data", ".hidden"]
    names += [f"again-{name}" for name in names] if again else []
    assert sorted(one.name for one in own.iterdir()) == sorted(names)
    assert (own.stat().st_uid, own.stat().st_mode & 0o777) == (JOB_USER, 0o700)
    assert [(own / path).stat().st_uid for path in ("trn", "trn/jobs/a/log", "my data/.x", ".hidden")] == [
        JOB_USER
    ] * 3 + [7]
    assert (root / "trn-teams/speech/b").read_text() == "trn-teams/speech/b", "a team's folder stays"
