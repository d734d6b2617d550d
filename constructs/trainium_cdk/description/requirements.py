"""Requirements that pip installs for a user, as lines for the cluster: from requirements files, a pyproject.toml or a uv.lock.

pip judges the lines, in `prepare` and before a Trainium node is paid for. Refused here is only what pip cannot see (a password in the text, a file
that is not sent), and a plain requirement that `packaging`, the library of pip itself, does not take.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath

from trainium_cdk.errors import RequirementError
from trainium_cdk.problems import show

MAX_BYTES = 500_000
"""Most bytes of all lines: a Kubernetes Secret holds 1 MiB with the job's other files."""
EXAMPLE = "einops==0.8.1"
_ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
"""Variables in requirements that pip replaces (pip's documentation, "Requirements File Format", 25.3)."""
_PASSWORD = re.compile(
    r"://[^/\s@:]*:[^/\s@]+@|(?<!ssh)://[^/\s@:]+@"
    r"|[?&]([^=&\s]*(token|secret|passw|signature|credential|auth)[^=&\s]*|(api_?|access_?)?key|sig)=[^&\s]",
    re.IGNORECASE,
)
"""A user with a password, a token in a user's place, or a value of an address's query that gives access."""
_IN_PATH = re.compile(r"://[^/\s]*/\S*\$\{")
_INCLUDE = re.compile(r"(-r|-c|--requirement(?=[ =])|--constraint(?=[ =]))[ =]*(\S+)")
_EDITABLE = re.compile(r"(-e|--editable(?=[ =]))[ =]*")
_PLAIN = re.compile(r"[A-Za-z0-9][^/@$\\]*")
"""A name, with or without versions, extras and a marker. Addresses and paths are not plain: they have a slash, an @ or a backslash, names of archives,
lines with a variable, and options."""
_INDEX = "--index-url https://pypi.org/simple"
"""uv's default. The nodes' own index stays theirs."""
_DEPTH = 20
"""Most files that include each other; pip has no limit."""
_UV = [
    "export",
    "--quiet",
    "--frozen",
    "--no-dev",
    "--no-emit-project",
    "--no-header",
    "--no-annotate",
    "--emit-index-url",
]


@dataclass
class Requirements:
    """Requirements of a job: `file` is what messages call them."""

    file: str
    lines: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)

    @property
    def variables(self) -> list[str]:
        """Names of the job's variables that pip replaces."""
        return sorted({name for line in (*self.lines, *self.constraints) for name in _VARIABLE.findall(line)})

    @property
    def paths(self) -> list[str]:
        """Files and folders of the code that lines name, from its folder, in which pip runs."""
        return [path for line in self.lines if (path := path_in(line))]


def read(given: str | Path | Sequence[str]) -> Requirements:
    """The requirements of a file, or of a list of lines.

    Raises:
        RequirementError: it cannot be read, names no package, or has a password in it.
    """
    if not isinstance(given, str | Path):
        found = Requirements("requirements")
        _add(found, "\n".join(given), None, found.lines)
    else:
        path = Path(given)
        found = Requirements(path.name)
        if path.name == "pyproject.toml":
            text = "\n".join(_dependencies(path))
        elif path.name == "uv.lock":
            text = _locked(path)
        elif path.suffix in (".toml", ".lock", ".yml", ".yaml", ".py"):
            raise RequirementError(
                f"{path} is not a requirements file", "give a requirements.txt, a pyproject.toml or a uv.lock"
            )
        else:
            text = _text(path)
        _add(found, text, path, found.lines)
    if all(line.startswith("-") for line in found.lines):
        raise RequirementError(f"{found.file} names no package", f"write one in a line, for example {EXAMPLE}")
    return found


def path_in(line: str) -> str:
    """The path of a file or folder of the code that a line names; empty if it names none.

    >>> [path_in(line) for line in ("einops", ".[dev]", "./wheels/own.whl", "-f wheels", "/efs/own.whl", "x @ https://h.org/x.zip")]
    ['', '.', 'wheels/own.whl', 'wheels', '', '']
    """
    folder = re.match(r"(-f|--find-links(?=[ =]))[ =]*", line)
    path = line[folder.end() :].strip("'\"") if folder else re.split(r"[;\[]| --", line)[0].strip()
    named = folder or path.startswith(".") or path.endswith(_ARCHIVES) or ("/" in path and "@" not in path)
    return normpath(path) if named and "://" not in path and not path.startswith(("/", "-")) else ""


def is_word(text: str) -> bool:
    """Return whether an entry is one word of names, versions and extras alone, as `bootstrap/lib/settings.sh` takes them.

    >>> is_word("transformers[torch]>=4.40,<5"), is_word("peft @ git+https://h.org/peft"), is_word("--pre")
    (True, False, False)
    """
    return bool(re.fullmatch(r"[A-Za-z0-9][\]A-Za-z0-9._<>=!~,*+\[-]*", text))


def entry(text: str) -> tuple[str, str]:
    """An entry of `bootstrap.pip_packages` in pip's own form, and the package that it names, or nothing.

    Raises:
        RequirementError: pip does not take it, or everybody could read a password in it.
    """
    if _PASSWORD.search(text) or "$" in text:
        raise RequirementError(
            "nodes have no variables for pip, and no place for a password",
            "give the package to a job: trn submit --requirements FILE --env TOKEN",
        )
    line, name = re.sub(r"(^|\s+)#.*", "", text).strip(), ""
    if re.match(r"--(extra-index-url|find-links)[ =]+https?://\S+$", line):
        line = re.sub(r"[ =]+", "=", line, count=1)
    elif not re.match(r"(\w+\+)?(https?|ssh)://\S+$", line):
        line, name = _parsed(line, "it")
    if odd := sorted({*"'|\\`"} & {*line}):
        raise RequirementError(
            f"it has the character {odd[0]}, which the settings of nodes cannot have", "write it without"
        )
    return line, name


def _parsed(line: str, where: str) -> tuple[str, str]:
    """A plain requirement in pip's own form, unless it is one word, and the name of its package."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        one = Requirement(line)
    except InvalidRequirement as e:
        reason = str(e).partition("\n")[0].rstrip(".")
        raise RequirementError(
            f"{where} is not a requirement that pip takes ({reason})",
            f"write a name with versions, for example {EXAMPLE} or transformers>=4.40,<5, or an address that begins with https://",
        ) from None
    return line if is_word(line) else str(one), canonicalize_name(one.name)


def _add(found: Requirements, text: str, path: Path | None, into: list[str], depth: int = 0) -> None:
    """Add the lines of a text, with the lines of files that it includes."""
    name = path.name if path else found.file
    for number, line in _lines(text):
        at = f"{name} line {number}"
        _check_secrets(line, at)
        if include := _INCLUDE.fullmatch(line):
            _include(found, include[1], include[2], path, into, at, depth)
            continue
        if editable := _EDITABLE.match(line):  # a link to the files of one job would be shared with others
            line = line[editable.end() :].strip("'\"")
            line = line if re.match(r"[./]|[\w+]+:|git@", line) else f"./{line}"
        if (plain := line.partition(" --")[0]) and _PLAIN.fullmatch(plain) and not plain.endswith(_ARCHIVES):
            _parsed(plain, f"{at}: {show(plain)}")
        into.append(line)
    if sum(map(len, (*found.lines, *found.constraints))) > MAX_BYTES:
        raise RequirementError(f"{found.file} has more than {MAX_BYTES:,} bytes", "put the packages into an image")


def _include(
    found: Requirements, option: str, name: str, path: Path | None, into: list[str], at: str, depth: int
) -> None:
    if path is None:
        raise RequirementError(f"{at}: {option} works in a file only", "give the path of a requirements file")
    if "://" in name:
        raise RequirementError(
            f"{at}: {option} names an address, whose content may change", f"download it, and write {option} FILE"
        )
    if depth == _DEPTH:
        raise RequirementError(f"{at}: {show(name)} includes itself", "remove one of the lines")
    file = path.parent / name
    _add(found, _text(file), file, found.constraints if "-c" in option else into, depth + 1)


def _check_secrets(line: str, at: str) -> None:
    if _PASSWORD.search(_VARIABLE.sub("", line)):
        raise RequirementError(
            f"{at}: the address contains a password or token, where everybody reads it",
            "write a variable in its place, as https://name:${TOKEN}@host/..., and give it to the job: --env TOKEN",
        )
    if _IN_PATH.search(line) and not line.startswith("-"):  # pip's direct_url.json
        raise RequirementError(
            f"{at}: pip would write the variable's value next to the installed package",
            "write it before the host, as https://name:${TOKEN}@host/...",
        )


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines without comments, continued ones joined as pip joins them, each with the number of its first line."""
    first, parts = 0, list[str]()
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        first = first or number
        comment = raw.lstrip().startswith("#")
        if raw.endswith("\\") and not comment:
            parts.append(raw[:-1])
            continue
        joined = "".join((*parts, f" {raw}" if comment else raw))
        if line := " ".join(re.sub(r"(^|\s+)#.*", "", joined).split()):
            yield first, line
        first, parts = 0, []


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise RequirementError(
                f"{show(str(file), 200)} has more than {MAX_BYTES:,} bytes", "give a file with the requirements alone"
            )
        return file.read_text("utf-8-sig")
    except OSError as e:
        raise RequirementError(f"cannot read {show(str(file), 200)}: {e.strerror}", "check the path") from None
    except ValueError:
        raise RequirementError(f"{show(str(file), 200)} is not text", "check the path, and save it as UTF-8") from None


def _dependencies(file: Path) -> list[str]:
    """The dependencies of a pyproject.toml."""
    from packaging.utils import canonicalize_name

    try:
        given = tomllib.loads(_text(file))
        found, sources = given["project"]["dependencies"], {*given.get("tool", {}).get("uv", {}).get("sources", ())}
    except tomllib.TOMLDecodeError as e:
        raise RequirementError(f"{file} is not a TOML file: {e}", "correct it") from None
    except (LookupError, TypeError, AttributeError):
        found, sources = None, set()
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise RequirementError(
            f"{file} has no list of dependencies in [project]",
            "give a uv.lock, or a requirements.txt: a dot (.) in it installs the project, with --workdir",
        )
    elsewhere = {canonicalize_name(name) for name in sources}
    if named := next((one for one in found if canonicalize_name(re.split(r"[^\w.-]", one)[0]) in elsewhere), None):
        raise RequirementError(
            f"{file}: [tool.uv.sources] says where {named} is, and pip does not read that",
            "run uv lock, and give --requirements uv.lock",
        )
    return found


def _locked(file: Path) -> str:
    """Export the project's requirements from its uv.lock. Leave out packages that the cluster has, and what only they need."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        raise RequirementError(
            f"uv reads {file}, and is not installed",
            "install it, or give what it writes elsewhere: uv export --no-emit-project -o requirements.txt",
        )
    text = _export(uv, file)
    if any("--hash" not in line and not line.startswith("-") for _, line in _lines(text)):
        return _export(uv, file, "--no-hashes")  # pip takes all hashes or none, and a folder or a repository has none
    return text


def _export(uv: str, file: Path, *options: str) -> str:
    from trainium_cdk.runner.layer import PROTECTED

    words = [uv, *_UV, *(word for name in PROTECTED for word in ("--prune", name)), *options]
    done = subprocess.run(
        words,
        cwd=file.absolute().parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        why = " ".join(done.stderr.split())[:300]
        raise RequirementError(f"uv does not take {file} ({why})", "run uv lock in its folder")
    return done.stdout.replace(f"{_INDEX}\n", "")
