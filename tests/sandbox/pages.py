"""The commands of a page, run in the sandbox in one shell as they are printed, and what each block of them prints."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from sandbox.local_aws import ACCOUNT
from sandbox.paths import HOME as ROOT
from tests.support import completed

_BLOCK = re.compile(r"^```bash\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_INSTALL = "uv tool install "
_ANSWERS = {"cdk deploy": "--require-approval never", "trn destroy": "--yes", "trn launch": "--yes"}
"""Prompts are answered by options."""
_STEPS = "--run-steps 20"
"""A job that would train for hours ends after some steps."""
_NOISE = (
    (r"\d{8}-[0-9a-f]{6}", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
    (r"\bi-[0-9a-f]{8,17}|(?:vpc|fs|vol|eni|subnet|sg|eipalloc|nat)-[0-9a-f]{8,17}", "RESOURCE"),
    (r"\b(\w+stack-[a-z]+)[0-9a-f]{8}-[0-9a-f]{13}|\bip-[\d-]+|\bsrc-[0-9a-f]{16}", "RESOURCE"),
    (r"\b\d+ resources", "RESOURCES"),
    (r"sha256:[0-9a-f]{64}|sha256 [0-9a-f]{64}|\b[0-9a-f]{40,64}\b", "SUM"),
    (r"'[-+\d.e]+'", "'N'"),
    (r"\b\d+(?:\.\d+)? ?(?:ms|s|min|m|h|d|kB|MB|bytes)\b", "AMOUNT"),
    (r"(AMOUNT ?)+", "AMOUNT"),
    (r"[ \t]+$", ""),
    (r"^deleting \S+: \d+ of .*$", ""),  # as often as there was time for it
)


class Step(NamedTuple):
    """A block of commands.

    Attributes:
        shown: what the page prints of its output; None if it prints none.
        at: where that stands in the page.
    """

    commands: str
    shown: str | None
    at: tuple[int, int]


def steps(page: str) -> list[Step]:
    """The blocks of a page, or of a part of it, without the line that installs: tests/foreign/test_empty_folder.py runs it."""
    found = [Step(re.sub(rf"^{_INSTALL}.*\n", "", m[1]), m[2], m.span(2)) for m in _BLOCK.finditer(page)]
    return [one for one in found if one.commands]


def masked(text: str) -> list[str]:
    """Its lines, without what differs from run to run."""
    for pattern, word in _NOISE:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [line for line in text.splitlines() if line]


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed. A line `...` stands for any lines."""
    have = masked(printed)
    parts: list[list[str]] = [[]]
    for line in masked(shown):
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    at = 0
    for number, part in enumerate(parts):
        places = [i for i in range(at, len(have) - len(part) + 1) if have[i : i + len(part)] == part]
        if not places or (number == 0 and places[0]):
            return False
        at = (places[-1] if number == len(parts) - 1 else places[0]) + len(part)
    return at == len(have)


def empty_folder(where: Path) -> Path:
    """A folder for a page's commands, with nothing but what the page names of this repository."""
    where.mkdir(parents=True)
    (where / "examples").symlink_to(ROOT / "examples")
    return where


def run(found: list[Step], where: Path, sandbox: Path) -> list[str]:
    """What each block printed, standard error included; all run in one shell, which the first failure ends."""
    lines = ["set -e"]
    for number, step in enumerate(found):
        lines += [f"echo ---{number}---", *map(_answered, step.commands.splitlines())]
    script = where / "page.sh"
    script.write_text("\n".join([*lines, "echo ---end---", ""]))
    command = [
        sys.executable,
        "-m",
        "sandbox",
        "shell",
        "--dir",
        sandbox,
        "--",
        "bash",
        "-c",
        f"exec 2>&1; . {shlex.quote(str(script))}",
    ]
    done = completed(command, cwd=where, env=_environment(where))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    script.unlink()
    text = re.sub(rf"{re.escape(str(where.resolve()))}|{re.escape(str(where))}", "/home/ubuntu/trainium", done.stdout)
    return re.split(r"^---(?:\d+|end)---\n", text, flags=re.MULTILINE)[1:-1]


def _answered(line: str) -> str:
    line = re.sub(r"^(trn image build \S+).*", r"IMAGE=$(\1); echo $IMAGE", line)  # a placeholder of the pages
    line = line.replace("--image IMAGE", "--image $IMAGE").replace("ACCOUNT", ACCOUNT)
    for command, option in _ANSWERS.items():
        line = line.replace(command, f"{command} {option}")
    if re.match("trn (submit|launch)", line) and "finetune" in line and _STEPS not in line:
        line = line.replace(" --nodes", f" {_STEPS} --nodes")
    return line


def _environment(where: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRN_", "CDK_"))}
    path = os.pathsep.join(
        filter(None, (str(ROOT), kept.get("PYTHONPATH")))
    )  # for `python -m sandbox` of another folder
    return kept | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": path,
        "XDG_CONFIG_HOME": f"{where}/.config-of-the-test",
    }
