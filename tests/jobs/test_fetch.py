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
