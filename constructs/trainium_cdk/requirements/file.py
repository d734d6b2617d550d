"""A requirements file, with the files that it includes; and a list of requirements."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainium_cdk.errors import RequirementError
from trainium_cdk.requirements.line import EXAMPLE, Line, logical, parse, redacted

MAX_BYTES = 500_000
"""Of a file with all that it includes: a Kubernetes Secret holds 1 MiB with the job's other files."""

_INSTEAD = {
    "poetry.lock": "write one with: poetry export -o requirements.txt",
    "pylock.toml": "write one with: uv export --format requirements.txt -o requirements.txt",
    "setup.py": "with --workdir, a line with a dot (.) in a requirements.txt installs the project",
    "environment.yml": "name its pip packages in a requirements.txt: conda does not run on the nodes",
    "environment.yaml": "name its pip packages in a requirements.txt: conda does not run on the nodes",
    "Pipfile.lock": "write one with: pipenv requirements > requirements.txt",
}
"""Files of other tools, and what to do."""


@dataclass(frozen=True)
class Requirements:
    """The requirements of a job.

    Attributes:
        file: what messages call them.
        lines: with those of included files.
        constraints: versions of packages, if something requires them.
        left_out: names and versions that are not installed, as the cluster has its own.
    """

    file: str
    lines: tuple[Line, ...]
    constraints: tuple[Line, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def packages(self) -> tuple[Line, ...]:
        return tuple(line for line in self.lines if not line.option)

    @property
    def variables(self) -> dict[str, str]:
        """The variables that pip replaces, each with the place of its first use."""
        return {name: line.at for line in reversed((*self.lines, *self.constraints)) for name in line.variables}

    @property
    def paths(self) -> tuple[Line, ...]:
        """The lines that name local files or folders."""
        return tuple(line for line in self.lines if line.path)


def read(file: str | Path) -> Requirements:
    """A requirements file with the files that it includes (`-r`, `-c`).

    Raises:
        RequirementError: one cannot be read, or has a line that pip does not take, that has a password in it, or that names what is only on this
            machine.
    """
    reader = _Reader(Path(file).name)
    reader.add(Path(file), str(file), ())
    return reader.result()


def of_lines(texts: Sequence[str], file: str = "requirements") -> Requirements:
    """Requirements that are given one by one, as the lines of a file without `-r` and `-c`.

    Raises:
        RequirementError: see `read`.
    """
    reader = _Reader(file)
    reader.parse("\n".join(texts), file, None, (), reader.lines)
    return reader.result()


def entry(text: str) -> Line:
    """One requirement of a list, or an option with its value: `--extra-index-url URL`, `--find-links URL`.

    Raises:
        RequirementError: pip does not take it, or it does not belong into a list that everybody can read.
    """
    if "\n" in text or "\r" in text:
        raise RequirementError("it has several lines", "write each requirement as an entry of its own")
    lines = [line for _, one in logical(text) for line in parse(one, "")]
    if len(lines) != 1:
        raise RequirementError("it names no package", f"write it as pip takes it, for example {EXAMPLE}")
    [line] = lines
    if line.option not in ("", "extra_index_url", "find_links"):
        raise RequirementError(
            f"the option --{line.option.replace('_', '-')} cannot be given here",
            "write a requirement, or --extra-index-url https://...",
        )
    if line.path or line.address.startswith("file"):
        raise RequirementError(
            "it is a file, which new nodes do not have",
            "put it on an index, or write an address that begins with https://",
        )
    if line.variables:
        raise RequirementError(
            "nodes have no variables for pip, and no place for a password",
            "give the package to a job: trn submit --requirements FILE --env TOKEN",
        )
    if odd := sorted({*"'|\\`$"} & {*(line.address if line.option else line.text)}):
        raise RequirementError(
            f"it has the character {odd[0]}, which the settings of nodes cannot have", "write it without"
        )
    if " --" in line.text and not line.option:
        raise RequirementError(
            "options after a requirement work in a file only", f"write the requirement alone, for example {EXAMPLE}"
        )
    return line


def is_word(text: str) -> bool:
    """Whether an entry is one word of names, versions and extras alone, as `bootstrap/lib/settings.sh` takes them.

    >>> is_word("transformers[torch]>=4.40,<5"), is_word("peft @ git+https://h.org/peft"), is_word("--pre")
    (True, False, False)
    """
    return bool(re.fullmatch(r"[A-Za-z0-9][\]A-Za-z0-9._<>=!~,*+\[-]*", text))


class _Reader:
    """What is collected of a file and those that it includes."""

    def __init__(self, file: str):
        self.file = file
        self.lines: list[Line] = []
        self.constraints: list[Line] = []
        self._size = 0

    def result(self) -> Requirements:
        if not any(not line.option for line in self.lines):
            raise RequirementError(
                f"{self.file} names no package", f"write one in a line, for example {EXAMPLE}, or remove --requirements"
            )
        return Requirements(self.file, tuple(self.lines), tuple(self.constraints))

    def add(self, path: Path, shown: str, above: tuple[Path, ...], *, constraints: bool = False) -> None:
        try:
            if not path.is_file():
                what = "a folder" if path.is_dir() else "not there"
                raise RequirementError(f"the requirements file {redacted(shown)} is {what}", "check the path")
            content = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b" " * (MAX_BYTES + 1)
        except (OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else "its name has a NUL byte"
            raise RequirementError(
                f"cannot read the requirements file {redacted(shown)}: {reason}", "check the path"
            ) from None
        self._size += len(content)
        if self._size > MAX_BYTES:
            raise RequirementError(
                f"{redacted(shown)} has more than {MAX_BYTES:,} bytes", "give a file with the requirements alone"
            )
        if path.suffix in (".toml", ".lock") or path.name in _INSTEAD:
            fix = _INSTEAD.get(path.name, "give a requirements.txt, a pyproject.toml or a uv.lock")
            raise RequirementError(f"{redacted(shown)} is no requirements file", fix)
        into = self.constraints if constraints else self.lines
        self.parse(_text(content, shown), shown, path, (*above, path.resolve()), into)

    def parse(self, text: str, shown: str, path: Path | None, above: tuple[Path, ...], into: list[Line]) -> None:
        for number, one in logical(text):
            at = f"{redacted(shown)} line {number}"
            for line in parse(one, at):
                if line.option not in ("requirement", "constraint"):
                    if into is self.constraints and not line.option and line.path:
                        raise RequirementError(
                            f"{at}: a constraint is a version, and this is a file", "remove the line"
                        )
                    into.append(line)
                    continue
                flag = "-r" if line.option == "requirement" else "-c"
                if path is None:
                    raise RequirementError(f"{at}: {flag} works in a file only", "give the path of a requirements file")
                if "://" in line.text:
                    name = line.text.partition("?")[0].rpartition("/")[2] or "other.txt"
                    raise RequirementError(
                        f"{at}: {flag} names an address, whose content may change",
                        f"download it, and write {flag} {redacted(name)}",
                    )
                file = path.parent / line.text
                if file.resolve() in above:
                    raise RequirementError(f"{at}: {line.text} includes itself", "remove one of the lines")
                constraints = into is self.constraints or flag == "-c"
                self.add(file, str(file), above, constraints=constraints)


def _text(content: bytes, shown: str) -> str:
    try:
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # `>` of PowerShell
            return content.decode("utf-16")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequirementError(f"{redacted(shown)} is not text", "save it as UTF-8") from None
