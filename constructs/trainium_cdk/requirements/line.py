"""One line of a requirements file: judged by `packaging`, the library that pip uses itself. The form of the lines is that of pip's documentation
("Requirements File Format", pip 25.3, 2025-10). Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from optparse import OptionParser, Values
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from trainium_cdk.errors import RequirementError
from trainium_cdk.problems import show, without_passwords

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet

ARCHIVES = (".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar")
EXAMPLE = "einops==0.8.1"
_ADDRESSES = ("index_url", "extra_index_url", "find_links")
_SCHEMES = ("http", "https", "file", "ssh", "git")
_VCS = ("git", "hg", "svn", "bzr")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
"""What pip replaces by a variable of the environment."""
_SECRET = re.compile(
    r"token|password|passwd|secret|signature|credential|auth|^(api_?|access_?)?key|^sig$", re.IGNORECASE
)
_COMMENT = re.compile(r"(^|\s+)#.*$")


@dataclass(frozen=True)
class Line:
    """One requirement, or one option.

    Attributes:
        at: where it stands, for messages.
        text: as pip takes it, on one line. A local path in it is `path`, relative to the folder of the code.
        name: of the package, normalized, if the line shows it; empty for options and, for example, a repository.
        specifier: its versions; None if an address or a path decides.
        marker: where it is installed; None: everywhere.
        address: with which scheme, where it is fetched from; empty: from an index.
        path: of a local file or folder, relative; empty if there is none.
        option: name of an option (`index_url`); empty for a requirement.
    """

    at: str
    text: str
    name: str = ""
    specifier: SpecifierSet | None = field(default=None, compare=False)
    marker: Marker | None = field(default=None, compare=False)
    address: str = ""
    path: str = ""
    option: str = ""

    def sent(self, folder: str) -> str:
        """The text, where the folder of the code is `folder`, from the place in which pip runs."""
        if not self.path:
            return self.text
        if self.option:
            return f"--find-links {shlex.quote(f'{folder}/{self.path}')}"
        return folder + self.text.removeprefix(".")

    @property
    def variables(self) -> list[str]:
        """Names of the variables that pip replaces in it."""
        return _VARIABLE.findall(self.text)


def redacted(text: str) -> str:
    """The text without what may be a password: in an address, before the @ and after the question mark."""
    return show(without_passwords(text), 100)


def logical(text: str) -> Iterator[tuple[int, str]]:
    """The lines without comments, continued ones joined, each with the number of its first line."""
    begun, parts = 0, list[str]()
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        comment = _COMMENT.match(raw) or not raw.endswith("\\")
        parts.append(f" {raw}" if _COMMENT.match(raw) else raw.removesuffix("\\") if not comment else raw)
        begun = begun or number
        if comment:
            if line := _COMMENT.sub("", "".join(parts)).strip():
                yield begun, line
            begun, parts = 0, []
    if line := _COMMENT.sub("", "".join(parts)).strip():
        yield begun, line


class _Options(OptionParser):
    def error(self, msg: str) -> NoReturn:
        raise ValueError(msg)


def _options() -> _Options:
    """pip's options of a line. (`pip._internal.req.req_file.SUPPORTED_OPTIONS` and `SUPPORTED_OPTIONS_REQ` of pip 25.3.)"""
    parser = _Options(add_help_option=False)
    parser.add_option("-i", "--index-url", "--pypi-url", dest="index_url", action="append")
    parser.add_option("-f", "--find-links", action="append")
    for name in ("extra-index-url", "no-binary", "only-binary", "trusted-host", "use-feature", "hash", "global-option"):
        parser.add_option(f"--{name}", action="append")
    for short, name in (("-r", "requirement"), ("-c", "constraint"), ("-e", "editable"), ("-C", "config-settings")):
        parser.add_option(short, f"--{name}", action="append")
    for name in ("no-index", "prefer-binary", "require-hashes", "pre"):
        parser.add_option(f"--{name}", action="store_true")
    return parser


_OF_ONE = ("hash", "config_settings", "global_option")


def parse(line: str, at: str) -> Iterator[Line]:
    """The requirement, or the options, of a line without comments."""
    where = f"{at}: " if at else ""
    words = line.split(" ")
    first = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    given, rest = " ".join(words[:first]).strip(), " ".join(words[first:])
    try:
        values: Values
        values, more = _options().parse_args(shlex.split(rest))
    except ValueError as e:
        raise RequirementError(
            f"{where}{redacted(line)} has an option that pip does not take in a requirements file ({redacted(str(e))})",
            "remove it",
        ) from None
    found = {name: value for name, value in vars(values).items() if value is not None}
    if more and not given and "=" not in "".join(more) and not found.keys() & {"editable"}:
        raise RequirementError(f"{where}{redacted(line)} has words after the option", "write each in a line of its own")
    if given:
        if more or found.keys() - {*_OF_ONE}:
            raise RequirementError(
                f"{where}{redacted(line)} has a requirement and an option", "write each in a line of its own"
            )
        yield _requirement(given, where, at, f" {rest}" if rest else "")
        return
    if "editable" in found:
        for text in found["editable"]:
            # nothing is edited there, and a link to the files of one job would be shared with others
            yield _requirement(" ".join([text, *more]), where, at, "")
        return
    for name, value in found.items():
        if name in _OF_ONE:
            raise RequirementError(
                f"{where}--{name.replace('_', '-')} stands without a requirement",
                f"write it after one, for example {EXAMPLE}",
            )
        for text in value if isinstance(value, list) else [None]:
            yield _option(name, text, where, at)


def _option(name: str, value: str | None, where: str, at: str) -> Line:
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return Line(at, flag, option=name)
    if name in ("requirement", "constraint"):
        return Line(at, value, option=name)
    if name in _ADDRESSES:
        if "://" in value:
            scheme = _check_address(value, where, option=True)
            if scheme not in ("http", "https", "file"):
                raise RequirementError(
                    f"{where}{redacted(value)} is no address of an index", "write one that begins with https://"
                )
            return Line(at, f"{flag} {shlex.quote(value)}", address=value, option=name)
        if name != "find_links":
            raise RequirementError(
                f"{where}{redacted(value)} is no address of an index", "write one that begins with https://"
            )
        path = _path(value, where)
        return Line(
            at, f"{flag} {shlex.quote(path)}", path="" if path.startswith("/") else path, address=path, option=name
        )
    return Line(at, f"{flag} {shlex.quote(value)}", option=name)


def _requirement(given: str, where: str, at: str, options: str) -> Line:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    target, extras, marker = _split(given)
    if _is_local(target) or "://" in target.partition("@")[0] or re.match(r"(git\+)?[\w.-]+@[\w.-]+:", target):
        return _by_place(target, extras, marker, where, at, options)
    try:
        one = Requirement(given)
    except InvalidRequirement as e:
        reason, fix = _misspelt(given, str(e).partition("\n")[0])
        raise RequirementError(f"{where}{redacted(given)} {reason}", fix) from None
    name = canonicalize_name(one.name)
    if one.url:
        if one.url.startswith("."):
            raise RequirementError(
                f"{where}{redacted(given)} has a path after the @", f"write the path alone: {redacted(one.url)}"
            )
        _check_address(one.url, where)
        text = given if options else str(one)
        return Line(at, text + options, name, None, one.marker, address=one.url)
    return Line(at, (given if options else str(one)) + options, name, one.specifier, one.marker)


def _split(given: str) -> tuple[str, str, str]:
    """An address or a path, its extras and its marker, as pip separates them."""
    target, _, marker = given.partition("; " if "://" in given.partition(";")[0] else ";")
    target = target.strip()
    extras = re.search(r"\[[\w.,\s-]*\]$", target)
    return (target[: extras.start()], extras[0], marker.strip()) if extras else (target, "", marker.strip())


def _is_local(target: str) -> bool:
    return "://" not in target and " @ " not in target and (
        target.startswith((".", "/", "~", "file:")) or "\\" in target or target.lower().endswith(ARCHIVES)
        or ("/" in target and "@" not in target)
    )  # fmt: skip


def _by_place(target: str, extras: str, marker: str, where: str, at: str, options: str) -> Line:
    """A requirement that is an address or a path."""
    from packaging.markers import InvalidMarker, Marker

    try:
        condition = Marker(marker) if marker else None
    except InvalidMarker:
        raise RequirementError(
            f"{where}{redacted(marker)} is no condition",
            'write one as pip takes it, for example python_version < "3.13"',
        ) from None
    after = (f" ; {condition}" if condition else "") + options
    name = _name_of(target)
    if "://" in target:
        _check_address(target, where)
        return Line(at, f"{target}{extras}{after}", name, None, condition, address=target)
    if re.match(r"(git\+)?[\w.-]+@[\w.-]+:", target):
        host, _, rest = target.removeprefix("git+").partition(":")
        raise RequirementError(
            f"{where}{redacted(target)} is an address of git, which pip takes in another form",
            f"write git+ssh://{host}/{rest}",
        )
    path = _path(target, where)
    if path.startswith("/"):
        return Line(at, f"{path}{extras}{after}", name, None, condition, address=path)
    return Line(
        at, f"./{path}{extras}{after}" if path != "." else f".{extras}{after}", name, None, condition, path=path
    )


def _path(text: str, where: str) -> str:
    """A local path in its shortest form: absolute, or relative to the folder of the code."""
    if text.startswith("file:") and not text.startswith("file:///"):
        raise RequirementError(
            f"{where}{redacted(text)} is no address of a file", "write its path, for example ./wheels/own.whl"
        )
    if text.startswith("~") or "\\" in text or re.match(r"[A-Za-z]:", text):
        raise RequirementError(
            f"{where}{redacted(text)} is a path that pip does not find on the cluster",
            "write one in the folder of the code, for example ./wheels/own.whl",
        )
    path = posixpath.normpath(text)
    if path.startswith("../") or path == "..":
        raise RequirementError(
            f"{where}{redacted(text)} leads out of the folder of the code",
            "put it there, and write its path in that folder",
        )
    return path


def _name_of(target: str) -> str:
    """The name that an address or a path shows: of a wheel, of an archive with a version, or after `#egg=`."""
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        canonicalize_name,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    address, _, fragment = target.partition("#")
    egg = re.search(r"(?:^|&)egg=([A-Za-z0-9._-]+)", fragment)
    if egg:
        return canonicalize_name(egg[1])
    file = unquote(address.partition("?")[0].rpartition("/")[2])
    try:
        return parse_wheel_filename(file)[0] if file.endswith(".whl") else parse_sdist_filename(file)[0]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""


def _check_address(url: str, where: str, *, option: bool = False) -> str:
    """The scheme of an address, without that of git. Raises RequirementError: pip does not fetch it, or a password is in it."""
    before, plus, plain = url.partition("+")
    plain = plain if plus and before in _VCS else url
    try:
        parts = urlsplit(plain)
        host = parts.hostname or ""
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise RequirementError(f"{where}{redacted(url)} is no address", "write one that begins with https://") from None
    if parts.scheme not in _SCHEMES:
        fix = (
            "copy it to the cluster (trn cp), and write its path there"
            if parts.scheme == "s3"
            else "write an address that begins with https://, or git+https://"
        )
        raise RequirementError(f"{where}pip does not fetch {redacted(url)}", fix)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    secret = _VARIABLE.sub("", password) or (not password and parts.scheme != "ssh" and _VARIABLE.sub("", user))
    query = any(_SECRET.search(key) and _VARIABLE.sub("", value) for key, value in pairs)
    if secret or query:
        example = "https://name:${TOKEN}@" + (host if re.fullmatch(r"[a-z0-9.-]+", host) else "host") + "/..."
        raise RequirementError(
            f"{where}a password or token stands in the address of {redacted(host) or 'an index'}, where everybody reads it",
            f"write a variable in its place, {example}, and give it to the job: --env TOKEN",
        )
    if "$" in _VARIABLE.sub("", url):
        raise RequirementError(
            f"{where}pip replaces variables in one form only", "write ${TOKEN}, in capital letters and with braces"
        )
    if not option and _VARIABLE.search(url.replace(parts.netloc, "", 1)):
        raise RequirementError(
            f"{where}pip would write the variable's value beside the installed package",
            "write it before the host, as https://name:${TOKEN}@host/...",
        )
    return parts.scheme


def _misspelt(given: str, reason: str) -> tuple[str, str]:
    """What is wrong with a requirement that pip does not take, and what to write."""
    words = given.split()
    if words[0] in ("pip", "pip3", "uv") or given.startswith("python"):
        return "is a command", f"write the requirement alone, for example {EXAMPLE}"
    name = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^\]]*\])?", given)
    rest = given[name.end() :].strip() if name else ""
    if name and (one := re.fullmatch(r"=\s*([0-9][A-Za-z0-9.*+!]*)(=\S*)?", rest)):
        return "has one = where pip compares with two", f"write {name[0]}=={one[1]}"
    if name and (version := re.fullmatch(r"v?([0-9][A-Za-z0-9.]*)", rest)):
        return "has a version without a comparison", f"write {name[0]}=={version[1]}"
    if name and re.fullmatch(r"[\w.-]+(\s+[\w.-]+)*", rest):
        return "has several words", f"write each package in a line of its own, for example {EXAMPLE}"
    if name and (one := re.fullmatch(r"([<>~]=?)\s*([0-9][0-9.]*)\.\*", rest)):
        sign = one[1] if one[1] != "~" else "~="
        return f"has .* after {one[1]}, which pip takes after == and != only", f"write {name[0]}{sign}{one[2]}"
    if name and " @ " in given and ";" in given:
        return f"is not what pip takes ({redacted(reason)})", "write a space before the semicolon"
    return (
        f"is not what pip takes ({redacted(reason).rstrip('.')})",
        f"write a name with versions, for example {EXAMPLE} or transformers>=4.40,<5",
    )
