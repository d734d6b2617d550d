"""The last recorded run of `make conformance` is of what is here now."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from conformance import cases, record
from tests.jobs import log_lines
from tests.support import need
from trainium_cdk.jobs import read_log, shell
from trainium_cdk.jobs.kinds import bert_large, gpt_67b


@cache
def now() -> dict[str, str]:
    return record.digests()


def differing(found: dict[str, str]) -> set[str]:
    """Names of those that are not as they are now."""
    return {*record.changed({name: now()[name] for name in found}, found)}


@pytest.mark.parametrize("what", ["a passing run", "the same artefacts", "the document"])
def test_a_run_is_recorded(what: str) -> None:
    need(record.FILE.exists(), f"no run of `make conformance` is recorded: {record.COMMAND}, of committed files")
    recorded = record.load()
    if what == "a passing run":
        verdicts = [verdict for _, _, verdict in recorded["rows"]]
        assert len(verdicts) > 50
        assert {v for v in verdicts if v != "accepted" and not v.startswith("cannot be checked: ")} == set()
    elif what == "the same artefacts":
        assert record.changed(recorded["digests"], now()) == [], record.COMMAND
    else:
        text = record.DOCUMENT.read_text("utf-8")
        assert record.document(text, recorded) == text


def test_what_is_covered() -> None:
    """Each start of each job of the cases on each engine, its files, what it fetches, the vendors' logs, and what compares them; nothing of the package."""
    jobs = {**cases.JOBS, **cases.MORE}
    parts = {
        f"{name} on {engine}: {part}"
        for name, job in jobs.items()
        for engine in cases.ENGINES
        for part in ("files", "prepare", "train", *(["precompile"] if job.precompile else []))
    }
    found = now()
    assert {name for name in found if "log of " not in name and ": restart" not in name} - parts == {
        file.relative_to(record.ROOT).as_posix()
        for file in (record.ROOT / "conformance").iterdir()
        if file.is_file() and file.name not in ("record.py", "recorded.yaml")
    }
    assert parts <= found.keys()
    for name, job in jobs.items():
        for engine in cases.ENGINES:
            again = found.get(f"{name} on {engine}: restart")
            assert again != found[f"{name} on {engine}: train"]
            assert (again is None) == (job.kind not in record.CHECKPOINTS)


@pytest.mark.parametrize("engine", cases.ENGINES)
@pytest.mark.parametrize(
    ("name", "change", "parts"),
    [
        ("bert-large", {}, set()),
        ("bert-large", {"learning_rate": 0.5}, {"precompile", "train", "restart"}),
        ("bert-large", {"env": {"NEURON_RT_LOG_LEVEL": "INFO"}}, {"precompile", "train", "restart"}),
        ("finetune", {"method": "full"}, {"train", "restart"}),
        ("finetune", {"data": "trl-lib/other"}, {"prepare", "train", "restart"}),
        ("script", {"content": b'#!/bin/bash\n# mine\npython3 train.py "$@"\n'}, {"files"}),
        ("script", {"args": ("--name", "a")}, {"train"}),
        ("torchtitan", {"ref": "f" * 40}, {"prepare", "train"}),
    ],
)
def test_a_change_that_a_program_sees_is_found(
    name: str, change: dict[str, object], parts: set[str], engine: str
) -> None:
    job = cases.JOBS[name].model_copy(update=change)
    assert differing(record.of_job(name, job, engine)) == {f"{name} on {engine}: {part}" for part in parts}


@pytest.mark.parametrize(("name", "module"), [("bert-large", bert_large), ("gpt-6.7b", gpt_67b)])
def test_a_changed_pin_of_a_package_is_found(name: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = (*module.PACKAGES.pins[:-1], "other==1.0")
    monkeypatch.setattr(module, "PACKAGES", module.PACKAGES._replace(pins=pins))
    assert differing(record.of_job(name, cases.JOBS[name], "slurm")) == {f"{name} on slurm: prepare"}


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("has_modules Add\\ it a b", ["has_modules", "a", "b"]),
        ("enough_files /data \\*.hdf5 128 Use\\ fewer\\ nodes", ["enough_files", "/data", "*.hdf5", "128"]),
        ("data_file a s3://b/c '' 12", ["data_file", "a", "s3://b/c", "", "12"]),
    ],
)
def test_advice_is_not_covered(line: str, kept: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "prepare", lambda *_: [line])
    words = json.dumps([[kept], []], sort_keys=True).encode()
    made = record.of_job("nccom", cases.JOBS["nccom"], "slurm")
    assert made["nccom on slurm: prepare"] == hashlib.sha256(words).hexdigest()[:16]


@pytest.mark.parametrize("engine", cases.ENGINES)
@pytest.mark.parametrize(
    ("pattern", "text", "parts"),
    [
        (rb"^(set -euo pipefail)$", rb"# another comment\n\1", set()),  # fetch.sh, node.sh
        (rb"was not written to its end", rb"is not whole", set()),  # checkpoints.sh
        (rb"^(  local containers=)", rb"  # another comment\n\1", set()),  # nxd_training.sh
        (rb"absl-py==2.4.0", rb"absl-py==2.3.0", {"prepare"}),
        (rb"pip install --no-build-isolation", rb"pip install", {"prepare"}),
    ],
)
def test_of_shell_only_what_is_installed_is_found(
    pattern: bytes, text: bytes, parts: set[str], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, replaced = shell.read, []

    def changed(*names: str) -> bytes:
        content, count = re.subn(pattern, text, read(*names), flags=re.MULTILINE)
        replaced.append(count)
        return content

    monkeypatch.setattr(shell, "read", changed)
    name = "gpt-6.7b"
    assert differing(record.of_job(name, cases.JOBS[name], engine)) == {f"{name} on {engine}: {part}" for part in parts}
    assert sum(replaced) > 0


def test_a_log_that_is_read_in_another_way_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bert = log_lines.USUAL["bert"]
    monkeypatch.setitem(log_lines.USUAL, "bert", lambda step: bert(step).replace(b"throughput : ", b"throughput: "))
    assert differing(record.logs()) == {"log of bert"}
    monkeypatch.undo()
    monkeypatch.setattr(record, "read_log", lambda log: read_log(log)[:-1])
    assert differing(record.logs()) == record.logs().keys() - {"log of titan's validation"}


def test_a_changed_file_that_compares_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = record.files()
    for name in [*before, "conformance/record.py"]:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((record.ROOT / name).read_bytes())
    monkeypatch.setattr(record, "ROOT", tmp_path)
    assert record.changed(before, record.files()) == []
    (tmp_path / "conformance/differences.yaml").write_text("other\n")
    (tmp_path / "conformance/new.py").write_text("1\n")
    (tmp_path / "conformance/record.py").write_text("2\n")
    assert record.changed(before, record.files()) == ["conformance/differences.yaml", "conformance/new.py"]


def test_a_table_of_a_run() -> None:
    rows = [
        ("a on slurm", "an original", "accepted"),
        ("recorded: b", "c", "accepted"),
        ("d", "e", "cannot be checked: f"),
    ]
    made = {"rows": rows, "date": "2026-11-24", "commit": "0" * 40}
    text = record.document(f"before\n{record.BEGIN}\nold\n{record.END}\nafter\n", made)
    lines = text.splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert f"Run on 2026-11-24 at {'0' * 40}: 2 accepted, 1 cannot be checked." in lines
    assert "| a on slurm | an original | accepted |" in lines
    assert (
        "| 1 interfaces and launch scripts recorded in `conformance/surfaces.yaml` | their sources | accepted |"
        in lines
    )
    assert "old" not in lines
    assert record.document(text, made) == text
