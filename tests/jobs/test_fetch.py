"""What `prepare` rejects before training nodes are paid for: the shell functions themselves."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support import completed

FETCH = str(files("trainium_cdk.jobs").joinpath("shell", "fetch.sh"))


@pytest.mark.parametrize("mode", ["fetch", "check"])
@pytest.mark.parametrize(
    ("shards", "needed", "code"), [(2, 2, 0), (3, 2, 0), (1, 2, 4), (0, 1, 4), (None, 2, 0)],
    ids=["enough", "more", "too few", "none", "not visible from here"],
)  # fmt: skip
def test_a_data_set_of_too_few_shards_is_rejected(
    mode: str, shards: int | None, needed: int, code: int, tmp_path: Path
) -> None:
    data = tmp_path / "data set"
    if shards is not None:
        (data / "below").mkdir(parents=True)
        for n in range(shards):  # in the folder itself and right below it
            (data / ("below" if n % 2 else ".") / f"part_training_{n}.hdf5").touch()
        (data / "part_test_0.hdf5").touch()
        (data / "below" / "deeper").mkdir()
        (data / "below" / "deeper" / "part_training_9.hdf5").touch()  # the training script does not look there
    call = '. "$0"; enough_files "$1" "*_training_*.hdf5" "$2" "Use fewer nodes"; echo continues'
    env = {
        "PATH": os.environ["PATH"],
        "job": str(tmp_path),
        "trn": str(tmp_path),
        "python": "-",
        "mode": mode,
        "UNPACK": "-",
    }
    run = completed(["bash", "-c", call, FETCH, str(data), str(needed)], env=env)
    message = f"trn: {data} has {shards} files *_training_*.hdf5, and the job needs {needed}. Use fewer nodes\n"
    assert (run.returncode, run.stdout, run.stderr) == (code, "" if code else "continues\n", message if code else "")


HUB = """
import os
from pathlib import Path

def snapshot_download(repo_id, *, revision="main", allow_patterns):
    # as the original: a folder for each commit, and the commit of a name that is none
    model = Path(os.environ["HF_HOME"], "hub", "models--" + repo_id.replace("/", "--"))
    commit = os.environ["NEWEST"] if revision == "main" else revision
    (model / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
    for name in allow_patterns:
        (model / "snapshots" / commit / name).touch()
    if revision == "main":
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs/main").write_text(commit)
"""


def test_all_files_of_a_model_are_of_one_commit(tmp_path: Path) -> None:
    """A job that reads the tokenizer alone comes first; the model is changed; a job that needs its weights follows."""
    (tmp_path / "huggingface_hub.py").write_text(HUB)
    for newest, names in (("a", "tokenizer.json"), ("b", "tokenizer.json model.safetensors")):
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(tmp_path),
            "job": "-",
            "trn": str(tmp_path),
            "python": "python3",
            "mode": "fetch",
            "UNPACK": "-",
            "NEWEST": newest,
        }
        run = completed(["bash", "-c", f'. "$0"; hugging_face owner/model {names}', FETCH], env=env)
        assert run.returncode == 0, run.stderr
    [snapshot] = (tmp_path / "hf_cache/hub/models--owner--model/snapshots").iterdir()
    assert {file.name for file in snapshot.iterdir()} == {"tokenizer.json", "model.safetensors"}
