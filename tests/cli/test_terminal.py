"""Text from elsewhere on a terminal: it shows, and does nothing. A pipe gets every byte."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import subprocess
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster, slurm  # noqa: F401  a fixture
from tests.support import TRN, completed
from tests.test_laws import PACKAGE
from trainium_cdk.client.cli import output

HOSTILE = (
    "\x1b]52;c;Y3VybCBldmlsIHwgc2g=\a"  # the clipboard
    "\x1b]0;title\x1b\\"
    "\x1b[2J\x1b[1;1H\x1b[31m"  # the screen, the cursor, colours
    "\x1bP$q\x1b\\\x1bc\x0e"  # device control, reset, another character set
    "\x9b31m\x9d0;t\x9c"  # the same as single characters
    "\u202egnp.\u2066\u2028"  # letters in another order, another kind of line
    "\x00\x07\x08\x7f"
)
PIECES = st.lists(
    st.one_of(
        st.binary(max_size=8),
        st.sampled_from([HOSTILE.encode(), b"\x1b[", b"\x1b[3", b"1m", b"\r", b"\r\n", b"\xc3", b"\xa9"]),
    )
)


@given(st.one_of(st.text(), st.text(alphabet="\x1b[]m;?0\r\n\a\x9b\u202e")))
@example(HOSTILE)
def test_output_has_no_control_characters(text: str) -> None:
    shown = output.clean(text)
    assert {unicodedata.category(c) for c in shown if c not in "\n\t"}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    assert output.clean(shown) == shown
    assert len(output.line(text).splitlines()) <= 1
    assert "\t" not in output.line(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
@example("caf\N{LATIN SMALL LETTER E WITH ACUTE} \N{CJK UNIFIED IDEOGRAPH-6F22} \N{ROCKET}\N{NO-BREAK SPACE}x")
def test_letters_stay_as_they_are(text: str) -> None:
    assert output.clean(text) == text


@given(PIECES)
def test_chunk_boundaries_make_no_difference(pieces: list[bytes]) -> None:
    cut, whole = output.Cleaner(), output.Cleaner()
    assert b"".join(map(cut.feed, pieces)) == whole.feed(b"".join(pieces))


@given(PIECES, st.sampled_from(["ascii", "latin-1", "utf-8", "koi8-r"]))
def test_eight_bit_terminals_get_no_control_characters(pieces: list[bytes], encoding: str) -> None:
    """A terminal of eight-bit characters takes parts of UTF-8's for control characters."""
    shown = output.Cleaner(encoding).feed(b"".join(pieces)).decode(encoding)
    assert output.clean(shown) == shown


def test_all_that_the_command_prints_goes_through_it() -> None:
    """Standard output and standard error are written to in one module."""
    found = []
    for file in sorted((PACKAGE / "cli").rglob("*.py")):
        if file.name == "output.py":
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if re.fullmatch(r"print|typer\.s?echo|sys\.std(out|err)(\.buffer)?\.write\w*|os\.write", called):
                found.append(f"{file.name}:{node.lineno}: {called}")
    assert found == []


@pytest.fixture(scope="module")
def env(slurm: LocalSlurm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:  # noqa: F811
    """A head node with one finished job, whose log is hostile."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "cluster.json").write_text(make_cluster(fleet(nodes=4)).model_dump_json())
    made = {**slurm.node_env(), "TRN_CLUSTER": str(folder / "cluster.json"), "LC_ALL": "C.UTF-8"}
    octal = "".join(f"\\0{byte:o}" for byte in HOSTILE.encode())
    (folder / "hostile.sh").write_text(f"printf '%b\\n' '{octal}'; echo end\n")
    for arguments in (["submit", "hostile.sh", "--nodes", "1", "--token", "t"], ["status", "--wait", "hostile-t"]):
        done = subprocess.run(
            [TRN, *arguments, "--local"], env=made, cwd=folder, capture_output=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
    return made


def on_a_terminal(arguments: Sequence[str], env: Mapping[str, str], code: int = 0) -> bytes:
    """All that a command writes to its terminal."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [TRN, *arguments], stdin=its, stdout=its, stderr=its, env={**env, "TERM": "xterm"}
    ) as running:
        os.close(its)
        came = bytearray()
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            came += piece
        assert running.wait(600) == code, came.decode()
    os.close(ours)
    return bytes(came)


def test_a_log_on_a_terminal_and_in_a_pipe(env: dict[str, str]) -> None:
    raw = HOSTILE.encode()
    shown = on_a_terminal(["logs", "hostile-t", "--local"], env)
    assert b"end\r\n" in shown  # the terminal's own line end
    assert b"]52;c;" in shown
    assert output.clean(text := shown.decode().replace("\r\n", "\n")) == text
    assert raw in on_a_terminal(["logs", "hostile-t", "--local", "--raw"], env)
    piped = subprocess.run([TRN, "logs", "hostile-t", "--local"], env=env, capture_output=True, timeout=600, check=True)
    assert raw in piped.stdout


def test_a_jobs_files_on_a_terminal(env: dict[str, str], slurm: LocalSlurm) -> None:  # noqa: F811
    """A job can write anything into its own folder, and everybody lists it."""
    job = Path(slurm.node_env()["TRN_SHARED_ROOT"], "efs/trn/jobs/hostile-t/job.json")
    described = json.loads(job.read_text())
    job.write_text(
        json.dumps({**described, "queue": f"{HOSTILE}\nforged-1\ttrain COMPLETED", "instance_type": HOSTILE})
    )
    try:
        for verb in ("list", "status"):
            shown = on_a_terminal([verb, *["hostile-t"] * (verb == "status"), "--local"], env).decode()
            assert "hostile-t" in shown
            # what draws the table's own title and borders
            assert output.clean(text := re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n")) == text
            assert "]52;c;" not in shown  # queue and type are those that were submitted
        piped = completed([TRN, "list", "--local"], env=env, timeout=600, check=True)
        assert [line.split("\t")[0] for line in piped.stdout.splitlines()] == ["job", "hostile-t"]
        assert output.clean(piped.stdout) == piped.stdout
    finally:
        job.write_text(json.dumps(described))


def test_an_error_on_a_terminal(env: dict[str, str]) -> None:
    name = HOSTILE.replace("\x00", "").replace("/", "")
    shown = on_a_terminal(["list", "--local"], {**env, "TRN_CLUSTER": name}, code=1).decode().replace("\r\n", "\n")
    assert "cannot read " in shown
    assert output.clean(shown) == shown


@pytest.mark.parametrize(
    ("term", "tty", "expected"),
    [("xterm", True, True), ("xterm", False, False), ("dumb", True, False), ("unknown", True, False)],
)
def test_a_terminal_that_cannot_move_its_cursor_has_lines(
    term: str, tty: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of an editor: what is drawn again and again would show nothing there."""
    monkeypatch.setenv("TERM", term)
    assert output.draws(Mock(isatty=lambda: tty)) is expected
