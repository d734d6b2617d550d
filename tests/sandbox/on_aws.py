"""The commands that docs/start/on-aws.md prints, in the order in which it does; and a shell of the sandbox for the commands of a page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from sandbox.local_aws import ACCOUNT
from sandbox.paths import HOME as ROOT
from tests.support import completed

PAGE = ROOT / "docs/start/on-aws.md"
_PROGRAMS = ("cdk ", "trn ", "export ", "python -m sandbox ")


def example() -> str:
    """Its environment file."""
    return next(textwrap.dedent(body) for language, body in _blocks(PAGE.read_text()) if language == "yaml")


def commands() -> list[str]:
    """Every command, whether in a block or in a sentence, without its comment."""
    text = PAGE.read_text()
    found: list[tuple[int, str]] = []
    for block in re.finditer(r"^ *```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        if block[1] == "bash":
            for line in block[2].splitlines():
                found += [(block.start(), one.strip()) for one in line.partition("  #")[0].split(";") if one.strip()]
    prose = re.sub(r"^ *```.*?^ *```$", lambda b: " " * len(b[0]), text, flags=re.MULTILINE | re.DOTALL)
    found += [
        (span.start(), " ".join(span[1].split()))
        for span in re.finditer(r"`([^`]+)`", prose)
        if span[1].startswith(_PROGRAMS)
    ]
    return [command for _, command in sorted(found, key=lambda one: one[0])]


def _blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)


class Shell:
    """The sandbox's shell, in a folder that looks like a checkout."""

    def __init__(self, sandbox: Path, checkout: Path) -> None:
        self._sandbox, self.checkout = sandbox, checkout
        self._exports: list[str] = []
        self.job = self.image = ""

    def fill(self, command: str) -> str:
        """Placeholders, replaced by their values."""
        command = command.replace("finetune-...", self.job).replace("IMAGE", self.image).replace("ACCOUNT", ACCOUNT)
        return re.sub(r"\bJOB\b", self.job, command)

    def split(self, command: str) -> list[str]:
        script = "; ".join(["set -e", *self._exports, f"exec {command}"])
        return [sys.executable, "-m", "sandbox", "shell", "--dir", str(self._sandbox), "--", "bash", "-c", script]

    def refused(self, command: str, reason: str) -> None:
        """Run a command that this cluster cannot serve."""
        done = completed(self.split(command), cwd=self.checkout, env=self._environment())
        assert done.returncode == 1
        assert reason in done.stderr

    def run(self, command: str, stdin: str = "") -> str:
        """Run one command as it is printed; a prompt is replaced by an option. Returns its standard output."""
        command = self.fill(command)
        if command.startswith("export "):
            self._exports.append(command)
            return ""
        answer = {"cdk deploy": " --require-approval never", "trn destroy": " --yes"}
        command += next((more for start, more in answer.items() if command.startswith(start)), "")
        command += " another.yaml" if command == "trn init" else ""
        done = completed(self.split(command), cwd=self.checkout, env=self._environment(), input=stdin)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def follow(self, command: str) -> None:
        """Follow a log until the training reports a step; then Ctrl-C."""
        command = self.fill(command)
        with subprocess.Popen(
            self.split(command), cwd=self.checkout, env=self._environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        ) as following:  # fmt: skip
            lines: list[str] = []
            for line in following.stdout or ():
                lines.append(line)
                if re.search(r"step_loss|loss", line):
                    break
            os.killpg(following.pid, signal.SIGINT)
            following.communicate()
        assert re.search("loss", lines[-1]), "".join(lines)[-4000:]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRN_", "CDK_"))}
        return {**kept, "PYTHONDONTWRITEBYTECODE": "1", "XDG_CONFIG_HOME": f"{self.checkout}/config"}


def checkout(folder: Path) -> Path:
    """A folder that looks like a checkout, with the page's environment file and a script in it."""
    for entry in ROOT.iterdir():
        if entry.name not in ("cdk.out", "environment.yaml", "cdk.context.json"):
            (folder / entry.name).symlink_to(entry)
    (folder / "environment.yaml").write_text(example())
    (folder / "my-script.py").write_text('import sys\nprint("got:", *sys.argv[1:])\n')
    (folder / "evaluate.sh").write_text('echo "evaluated on $(hostname)"\n')
    return folder
