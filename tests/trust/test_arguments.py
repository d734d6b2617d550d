"""Arguments of users reach the program as the same bytes, or are refused: through bash, sbatch, srun and SSM."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jobs.conftest import make_cluster
from tests.support import completed, many
from trainium_cdk.client.cli import app
from trainium_cdk.client.jobs.job_spec import render, text
from trainium_cdk.client.jobs.words import MAX_WORD_BYTES
from trainium_cdk.jobs import BertLarge, JobError, Script, SlurmBackend

NASTY = [
    "", " ", "'", '"', "''", "a'b\"c", "$(touch /tmp/pwned)", "`touch /tmp/pwned`", "${HOME}", "$HOME", "$", "\\", "\\\\n", "\\'",
    "\n", "\n\n", "a\nb", "\r", "\r\n", "\t", "\x01\x02\x1b[31m", "\x7f", "-n", "--", "-", "--nodes=9", "#SBATCH --nodes=9",
    "\n#SBATCH --nodes=9", "EOF", "\nEOF\n", "EOF_", "; rm -rf x", "&& true", "|", "<", ">", "*", "?", "[a]", "~", "~root", "{a,b}",
    "!", "!!", "^", "%j", "%s", "%", "{", "}", "{name}", "{{}}", "\\x00", "é", "日本語", "\u2028", "\u202e", "\ufeff", "👩‍🚀", "e\u0301",
    "\U0010ffff", "a=b", "=", "x" * 5000, "'" * 1000, "\n" * 1000, "é" * 3000,
]  # fmt: skip
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    NASTY
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
RECORDER = f"""#!{sys.executable} -ES
import os, sys
open("argv", "wb").write(b"".join(os.fsencode(word) + b"\\0" for word in sys.argv[1:]))
open("env", "wb").write(b"".join(k + b"=" + v + b"\\0" for k, v in os.environb.items()))
""".encode()
"""No shell: it would set some variables again."""
ONE = {"max_examples": 3, "deadline": None, "suppress_health_check": list(HealthCheck)}


def given_env(wanted: dict[str, str]) -> dict[str, str]:
    """Those that are not refused."""
    taken = {}
    for name, value in wanted.items():
        with contextlib.suppress(JobError):
            Script(filename="x", content=b"x", env={name: value})
            taken[name] = value
    return taken


def arrived(folder: Path) -> tuple[list[bytes], dict[bytes, bytes]]:
    argv = (folder / "argv").read_bytes().split(b"\0")[:-1]
    pairs = (pair.partition(b"=") for pair in (folder / "env").read_bytes().split(b"\0") if pair)
    return argv, {name: value for name, _, value in pairs}


def compare(folder: Path, args: list[str], env: dict[str, str]) -> None:
    """What a job was given against what has arrived, byte by byte."""
    argv, found = arrived(folder)
    assert len(argv) == len(args)
    wrong = [word for word, there in zip(args, argv, strict=True) if there != word.encode()]
    wrong += [name for name, value in env.items() if found.get(name.encode()) != value.encode()]
    assert wrong == []


def check(backend: SlurmBackend, jobs_dir: Path, args: list[str], env: dict[str, str]) -> None:
    """Run a job with these arguments and compare bytes."""
    job = backend.submit(Script(filename="says.sh", content=RECORDER, args=tuple(args), env=env))
    ended = backend.wait(job.id, 600)
    assert ended.ok, b"".join(c.data for c in backend.logs(job.id))[-2000:]
    compare(jobs_dir / job.id / "work", args, env)


def of_bash() -> list[str]:
    """Every variable that a bare bash sets."""

    done = completed(["bash", "-c", "compgen -v"], env={}, check=True)
    return done.stdout.split()


@settings(**ONE)
@given(
    args=st.lists(VALUES, min_size=150, max_size=220),
    env=st.dictionaries(NAMES, VALUES, min_size=20, max_size=40),
)
def test_arguments_through_sbatch_and_srun(
    backend: SlurmBackend, jobs_dir: Path, args: list[str], env: dict[str, str]
) -> None:
    """Some two hundred of them in each job."""
    check(backend, jobs_dir, [*NASTY, *args], given_env(env))


@pytest.mark.sweep
def test_arguments_through_ssm(over_ssm: Callable[..., SlurmBackend], jobs_dir: Path) -> None:
    env = {f"NASTY_{i}": word for i, word in enumerate(NASTY)}
    check(over_ssm(), jobs_dir, NASTY, env)
    assert not Path("/tmp/pwned").exists()


@pytest.mark.sweep
def test_every_name_that_bash_knows_arrives(backend: SlurmBackend, jobs_dir: Path) -> None:
    names = ["LC_ALL", "LANG", "TZ", "BASH_ENV", "ENV", "PS1", "PS4", "CDPATH", "GLOBIGNORE", "EXECIGNORE", "TMOUT", "LD_PRELOAD",
             "PYTHONPATH", "HOSTNAME", "NAME", "http_proxy", "no_proxy", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"]  # fmt: skip
    env = given_env(
        {
            name: "C" if name in ("LC_ALL", "LANG") else "" if name == "LD_PRELOAD" else "7"
            for name in {*names, *of_bash()}
        }
    )
    assert {*names, *of_bash()} - set(env) == {"PATH"}
    check(backend, jobs_dir, [], env)


@pytest.mark.parametrize("name", ["NODE_RANK", "RANK", "TRN_CHECKPOINTS", "PATH", "VIRTUAL_ENV"])
def test_a_name_that_the_runner_sets_is_refused(name: str) -> None:
    """Else a program would not find its own value."""
    with pytest.raises(JobError, match=f"env {name}: .*Choose another name, or set it in your own script"):
        Script(filename="x", content=b"x", env={name: "1"})


@pytest.mark.sweep
def test_the_longest_arguments(backend: SlurmBackend, jobs_dir: Path) -> None:
    longest = "x" * MAX_WORD_BYTES
    check(backend, jobs_dir, [longest, "é" * (MAX_WORD_BYTES // 2)] * 3, {"LONG": longest[5:]})
    for fields in (
        {"args": (longest + "x",)},
        {"args": ("x" * 1_000_000,)},
        {"env": {"LONG": longest}},
        {"args": (longest,) * 8},
    ):
        with pytest.raises(JobError, match=r"has [\d,]+ bytes|have [\d,]+ bytes together"):
            Script(filename="x", content=b"x", **fields)


@pytest.mark.parametrize("word", ["\0", "a\0b", "\udcff"])
def test_impossible_arguments_are_refused(word: str) -> None:
    for fields in ({"args": (word,)}, {"env": {"A": word}}):
        with pytest.raises(JobError, match=r"NUL byte|not UTF-8"):
            Script(filename="x", content=b"x", **fields)


@settings(max_examples=many(200))
@given(VALUES, VALUES, VALUES, VALUES)
def test_names_and_paths_are_refused_or_safe(name: str, token: str, path: str, queue: str) -> None:
    """Unquoted values in scripts are plain words; the rest is quoted, on one line."""
    for make in (
        lambda: Script(filename="x", content=b"x", name=name),
        lambda: Script(filename=name, content=b"x"),
        lambda: Script(filename="x", content=b"x", queue=queue),
        lambda: Script(filename="x", content=b"x", cache=name),
        lambda: Script(filename="x", content=b"x", time_limit=token),
        lambda: Script(filename="x", content=b"x", env={name: "x"}),
        lambda: BertLarge(data=path), lambda: BertLarge(data=f"/efs/{path}"), lambda: BertLarge(data=f"s3://bucket/{path}"),
        lambda: BertLarge(phase=2, checkpoint=f"/efs/{path}/ckpt_1.pt"),
    ):  # fmt: skip
        try:
            made = render(make(), make_cluster(), token)
        except JobError:
            continue
        for line in text(made).splitlines():
            assert not line.startswith("#SBATCH") or re.fullmatch(r"#SBATCH --[a-z-]+(=[A-Za-z0-9:._\[\]-]+)?", line), (
                line
            )


@pytest.mark.sweep
def test_a_data_directory_of_any_name(backend: SlurmBackend, jobs_dir: Path) -> None:
    name = """it's "$(touch pwned)" `id` ü\\ *"""
    folder = jobs_dir.parents[1] / name
    folder.mkdir()
    for i in range(32):
        (folder / f"part_training_{i}.hdf5").write_bytes(os.urandom(512))
    job = backend.submit(BertLarge(optimizer="adamw", run_steps=1, precompile=False, data=f"/efs/{name}"))
    assert backend.wait(job.id, 600).ok, b"".join(c.data for c in backend.logs(job.id))[-2000:]
    assert not list(jobs_dir.parents[2].rglob("pwned"))


VERBS = [
    "submit",
    "status",
    "logs",
    "cancel",
    "list",
    "check",
    "show",
    "nodes",
    "schema",
    "catalog",
    "bert-large",
    "gpt-6.7b",
]
FLAGS = ["--nodes", "-N", "--env", "--environment", "--wait", "--list", "--offline", "--json", "--token", "--dry-run", "--data", "--name", "-f", "--stage", "--offset", "--limit", "--timeout",
         "--queue", "--time-limit", "--cluster", "--steps", "--learning-rate", "--", "-h", "--phase", "--checkpoint", "--cache"]  # fmt: skip
ARGV = st.lists(
    st.sampled_from(VERBS)
    | st.sampled_from(FLAGS)
    | VALUES
    | st.sampled_from(["1", "-1", "9" * 30, "A=b", "/", "../x"]),
    max_size=7,
)


@settings(max_examples=many(300), suppress_health_check=list(HealthCheck))
@given(verb=st.sampled_from(VERBS), argv=ARGV)
def test_no_command_line_ends_in_a_traceback(
    verb: str, argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself, in this process: one paragraph, and exit code 0, 1 or 2."""
    (tmp_path / "cluster.json").write_text(make_cluster(shared_dir=str(tmp_path / "none")).model_dump_json())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRN_CLUSTER", str(tmp_path / "cluster.json"))
    local = ["--local"] if verb in ("submit", "status", "logs", "cancel", "list") else []
    monkeypatch.setattr(sys, "argv", ["trn", verb, *local, *argv])
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process keeps its own
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code in (0, 1, 2, None)
    assert "bug in trn" not in err.getvalue(), err.getvalue()
    assert "Traceback" not in err.getvalue()
