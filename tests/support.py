"""What tests share."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.slurm import LocalSlurm
from sandbox.testing import (
    completed,
    head_node,
    need,
    need_kubernetes,
    need_local_aws,
    need_pcluster,
    need_slurm,
    session_manager_plugin,
    until,
)

__all__ = [
    "completed",
    "head_node",
    "need",
    "need_kubernetes",
    "need_local_aws",
    "need_pcluster",
    "need_slurm",
    "session_manager_plugin",
    "until",
]

ROOT = Path(__file__).parent.parent
TRN = Path(sys.executable).with_name("trn")
SHELLCHECK = Path(sys.executable).with_name("shellcheck")


@contextlib.contextmanager
def file_system(folder: Path, size: str) -> Iterator[None]:
    """The folder is a file system of its own, of so many bytes, as `4k`."""
    folder.mkdir(parents=True, exist_ok=True)
    done = completed(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder])
    need(done.returncode == 0, f"no file system can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        completed(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """Leave no room on the file system of a folder, but for what `filler` in it takes."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", 0) as file:
        while file.write(bytes(4096)):
            pass


def put_aside() -> set[Path]:
    """Responses that SSM commands have stored, and that no client has fetched completely."""
    return set(Path("/tmp").glob("trn-ssm-*"))


def fetched(before: set[Path]) -> None:
    """Wait until every response stored since then is deleted: other tests store some as well."""
    left = put_aside() - before
    assert until(lambda: not any(folder.exists() for folder in left)), left


def begins_again(slurm: LocalSlurm, number: str, when: Callable[[], Any], seconds: float = 240) -> Any:
    """Wait until it is so, of a stage that Slurm itself would start again after some minutes. In the second in which it ended its last run (since then
    Slurm counts it as submitted), its node would refuse it."""

    def now() -> Any:
        waits = ["squeue", "-h", "-j", number, "-t", "PENDING", "-o", "%V"]
        submitted = slurm.run(waits, env={"SLURM_TIME_FORMAT": "%s"}).stdout.split()
        if submitted and time.time() - max(map(float, submitted)) > 2:
            slurm.run(["scontrol", "update", f"JobId={number}", "StartTime=now"])
        return when()

    return until(now, seconds)


def many(count: int) -> int:
    """Examples that Hypothesis draws: `make trust` draws `count`, the other layers a fifth of them."""
    return count if os.environ.get("EXAMPLES") == "many" else count // 5


def table(test: str, name: str) -> Any:
    """A long table of a test, by the path of its file: in the YAML file beside it, of the same name without `test_`."""
    file = Path(test)
    return yaml.safe_load(file.with_name(file.name.removeprefix("test_")).with_suffix(".yaml").read_text("utf-8"))[name]


def golden(file: Path, text: str) -> str:
    """What a golden file holds; with TRN_UPDATE_GOLDEN=1 `text` is written there first: read the difference before you commit it."""
    if os.environ.get("TRN_UPDATE_GOLDEN") == "1":
        file.write_text(text, "utf-8")
    return file.read_text("utf-8")


def golden_rows(file: Path, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of a table that a page of docs/ shows (`make docs` writes them there); updated as `golden` does."""
    comment = "# For the site: tools/reference/ reads it.\n"
    text = golden(file, comment + yaml.safe_dump(rows, sort_keys=False, width=10_000, allow_unicode=True))
    found: list[dict[str, str]] = yaml.safe_load(text)
    return found


def swept(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Parameters of a test: `make trust` runs all of them, the other layers those that are named in `kept`. A tuple has one for each name."""
    every = list(values)
    assert set(kept) <= set(every), set(kept) - set(every)
    return [
        pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=() if one in kept else pytest.mark.sweep)
        for one in every
    ]
