"""The files of a cluster from before each namespace had a folder on EFS: the example moves them, as docs/guides/change.md says. That the API takes
its pod is in `test_boundaries.py`."""

from __future__ import annotations

import os
from pathlib import Path

from ruamel.yaml import YAML

from sandbox.kubernetes import schemas
from sandbox.paths import HOME
from tests.support import completed, need
from trainium_cdk.description.outputs.eks import JOB_USER

EXAMPLE = HOME / "examples/kubernetes/own-folder.yaml"
FILES = {"trn/jobs/a/log": JOB_USER, "my data/.x": 0, "-x": 0, ".hidden": 7}


def test_the_example_moves_all_files_and_gives_those_of_root_away(tmp_path: Path) -> None:
    need(os.geteuid() == 0, "only root gives files away")
    pod = YAML(typ="safe").load(EXAMPLE)
    assert schemas.validate_all([pod]) == []
    [container] = pod["spec"]["containers"]
    environment = {**os.environ, **{each["name"]: each["value"] for each in container["env"]}}
    team, own = tmp_path / "trn-teams/speech/b", tmp_path / "trn-teams/training"
    team.parent.mkdir(parents=True)
    team.write_text("a team's")
    for part in ("", "again-"):  # it was ended in between, or other files came
        for path, user in FILES.items():
            file = tmp_path / f"{part}{path}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(path)
            os.chown(file, user, user)
        done = completed([*container["command"], *container["args"]], cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        assert [one.name for one in tmp_path.iterdir()] == ["trn-teams"]
        assert [(own / f"{part}{path}").read_text() for path in FILES] == list(FILES)
        assert [(own / f"{part}{path}").stat().st_uid for path in FILES] == [JOB_USER, JOB_USER, JOB_USER, 7]
    assert (own.stat().st_uid, own.stat().st_mode & 0o777) == (JOB_USER, 0o700)
    assert team.read_text() == "a team's", "a team's folder stays"
