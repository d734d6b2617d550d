"""A job in a file: the words of `trn submit`, by the names of its options. The command line reads and judges them. And its variables in a file (`--env-file`),
in the form of Docker Compose and python-dotenv."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainium_cdk.client.cli.options import CLUSTER_OPTIONS, check_known, parsed, split
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.errors import JobError, fix_of_path
from trainium_cdk.problems import KeyPath, Source

_NOT_OF_A_JOB = frozenset({"dry-run", "follow", "json", "save", "token", "yes"})
"""Options that say how a job is submitted."""
_PATHS = frozenset({"env-file", "requirements", "workdir"})
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSWORD", re.IGNORECASE)
"""In the names of variables whose values `--save` does not write."""
_KEPT = "trn.job_file"
_MOST_BYTES = 1_000_000
_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[^\s=\#'"]+)[ \t]*
    (?:=[ \t]*(?:'(?P<plain>[^']*)'|"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<bare>[^\n]*?)))?[ \t]*(?:(?<=[ \t])\#[^\n]*)?(?=\n|$)""",
    re.VERBOSE | re.DOTALL,
)
_EMPTY = re.compile(r"[ \t]*(#[^\n]*)?(?=\n|$)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "$": "$"}


@dataclass(frozen=True)
class _JobFile:
    """A job file on a command line. keys: the keys that count, by the names of their parameters."""

    source: Source
    keys: Mapping[str, str]


def expand(ctx: Any, words: Sequence[str], name: str, command_of: Callable[[Sequence[str]], Any]) -> list[str]:
    """The words of a command line, with the words of the job file that it names. An option on the command line wins.

    Args:
        words: those after `submit`. name: the file's, which is one of them.
        command_of: returns the command for such words.

    Raises:
        SettingsFileError, SettingsError, JobError: the file cannot be read, or has a key that is none.
    """
    own, behind = split(words)
    data, source = _read(Path(name))
    own.remove(name)
    job, args = data.pop("job", ""), _texts(data.pop("args", []), ("args",), source)
    if isinstance(job, list):
        job, args = "", _texts(job, ("job",), source)
    elif _is_kind(job) and args:
        raise JobError(f"{source.where(('args',))}: {job} takes no arguments. Remove args")
    elif (Path(name).parent / str(job)).is_file():
        job = str(Path(name).parent / str(job))
    elif job and "workdir" not in data:
        check_known(str(job))
    command = command_of([str(job)] if job else ["--", *args])
    keys, typed = _keys(command), parsed(command, own)
    options, used = [], {}
    for key, value in data.items():
        plain = str(key).replace("_", "-")
        if plain not in keys:
            raise JobError(f"{source.where((key,))}: {_unknown(plain, keys, script=not _is_kind(job))}")
        if keys[plain].name in typed and plain != "env":
            continue
        used[keys[plain].name] = key
        options += _words(plain, value, keys[plain], (key,), source)
    ctx.meta[_KEPT] = _JobFile(source, used)
    args = behind[1:] or args
    return [*([str(job)] if job else []), *options, *own, *(["--", *args] if args else [])]


def place(ctx: Any, names: Iterable[str]) -> str:
    """Where the first of these parameters is in the job file, as the start of a message; empty if no file has one."""
    file: _JobFile | None = ctx.meta.get(_KEPT)
    key = next((file.keys[name] for name in names if name in file.keys), None) if file else None
    return f"{file.source.where((key,))}: " if file and key else ""


def write(ctx: Any, file: Path, job: str, args: Sequence[str], *, is_command: bool) -> list[str]:
    """Write the job of a command line to a file, without secrets; returns the variables that your shell must have in their place.

    Raises:
        JobError: the file exists, or cannot be written.
    """
    from ruamel.yaml import YAML

    from trainium_cdk.runner.aws import SECRET_BEGINS

    data: dict[str, Any] = {"job": [job, *args] if is_command else job if _is_kind(job) else _from(file, job)}
    data |= {"args": list(args)} if args and not is_command else {}
    secrets: list[str] = []
    for key, parameter in _keys(ctx.command).items():
        source = ctx.get_parameter_source(parameter.name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = ctx.params[parameter.name]
        values = [
            _from(file, str(v)) if _is_path(key, str(v)) else v for v in (value if parameter.multiple else [value])
        ]
        data[key] = values if parameter.multiple else values[0]
        if key == "env":
            pairs = [(name, text if equals else None) for name, equals, text in (v.partition("=") for v in values)]
            secrets = [n for n, text in pairs if text and _SECRET.search(n) and not text.startswith(SECRET_BEGINS)]
            data[key] = {name: None if name in secrets else text for name, text in pairs}
    text = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(data, text)
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text.getvalue())
    except FileExistsError:
        raise JobError(f"{file} exists. Remove it, or give another name to --save") from None
    except OSError as e:
        raise JobError(f"cannot write {file}: {e.strerror}. Give another name to --save") from None
    return secrets


def json_schema() -> dict[str, Any]:
    """The JSON schema of a job file, for completion and checks in editors. A script has the same keys as any other job."""
    from trainium_cdk.client.jobs.kinds import by_name, kinds

    texts: dict[str, Any] = {"type": "array", "items": {"type": ["string", "number"]}}
    first = {
        "job": {"description": "A kind of job, the path of a script, or a command as a list of words.", "anyOf": [{"type": "string"}, texts]},
        "args": {"description": "Arguments of the script.", **texts},
        "env": {"description": "Variables. One without a value takes it from your shell.", "type": "object"},
        "env-file": {"description": "Files of variables.", "type": ["string", "array"]},
    }  # fmt: skip
    parts, cases = {}, []
    for name, kind in kinds().items():
        own = kind.model_json_schema()
        hidden = {"kind", "filename", "content", "command", "inside", "tree", "user", "args", "env"}
        fields = {n.replace("_", "-"): f for n, f in own["properties"].items() if n not in hidden}
        for form in (form for field in fields.values() for form in (field, *field.get("anyOf", ()))):
            if form.get("type") == "string":  # a text that looks like a number is one
                form["type"] = ["string", "number"]
        parts[name] = {"properties": {**first, **fields}, "additionalProperties": False}
        if by_name(name):
            cases.append(
                {
                    "if": {"properties": {"job": {"const": name}}, "required": ["job"]},
                    "then": {"$ref": f"#/$defs/{name}"},
                }
            )
    other: dict[str, Any] = {"$ref": "#/$defs/script"}
    for case in reversed(cases):
        other = {**case, "else": other}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Job",
        "type": "object",
        **other,
        "$defs": parts,
    }


def _read(file: Path) -> tuple[dict[str, Any], Source]:
    from trainium_cdk.description.settings.environment import Environment
    from trainium_cdk.description.settings.load import read_text, read_yaml

    data, source, blank = read_yaml(read_text(file, "a job file"), str(file), "a job file", "job: train.py")
    if not data.get("job"):
        if set(data) & set(Environment.model_fields) - {"name"}:
            use = printed("trn", "use", file)
            raise JobError(
                f"{file} is an environment file, which describes a cluster. For that: {use}. Give a job here"
            )
        raise JobError(f"{file} has no job. Write job: with a kind, the path of a script, or a command as a list")
    if empty := [key for key in blank if key[:1] != ("env",)]:
        raise JobError(f"{source.where(empty[0])}: {empty[0][0]} has no value. Write one, or remove the line")
    return data, source


def _keys(command: Any) -> dict[str, Any]:
    """The keys of a job file other than `job` and `args`, with the parameter of each."""
    options = {p.opts[0].removeprefix("--"): p for p in command.params if p.opts[0].startswith("--")}
    return {n: p for n, p in options.items() if n not in _NOT_OF_A_JOB and p.name not in (*CLUSTER_OPTIONS, "help")}


def _unknown(key: str, keys: Mapping[str, Any], *, script: bool) -> str:
    from trainium_cdk.client.cli.peers import option

    if key in _NOT_OF_A_JOB or key in {"cluster", "environment", "region", "stack", "team"} | ({"user"} - keys.keys()):
        return f"{key} is not part of a job. Give it on the command line: --{key}"
    advice = option(f"--{key}", [f"--{k}" for k in keys], script=False).replace("--", "")
    where = "; arguments of your script belong under args" if script else "" if advice else "; remove it"
    return f"there is no key {key}{advice}{where}"


def _is_kind(job: str) -> bool:
    from trainium_cdk.client.jobs.kinds import find

    return find(job) is not None


def _words(key: str, value: Any, parameter: Any, at: KeyPath, source: Source) -> list[str]:
    """The words of one key."""
    where, folder = source.where(at), Path(source.file).parent
    if parameter.is_flag:
        if not isinstance(value, bool):
            raise JobError(f"{where}: {key} is {value!r}. Write true or false")
        return [f"--{key}" if value else parameter.secondary_opts[0]]
    if isinstance(value, Mapping):
        if key not in ("env", "sweep"):
            raise JobError(f"{where}: {key} has keys below it, and takes a value. Write {key}: VALUE")
        return [f"--{key}={_pair(key, name, one, (*at, name), source)}" for name, one in value.items()]
    values = [(one, (*at, i)) for i, one in enumerate(value)] if isinstance(value, list) else [(value, at)]
    if isinstance(value, list) and not parameter.multiple:
        raise JobError(f"{where}: {key} takes one value, not a list. Write {key}: VALUE")
    texts = [_text(one, path, source) for one, path in values]
    return [f"--{key}={folder / Path(text).expanduser() if _is_path(key, text) else text}" for text in texts]


def _pair(key: str, name: Any, value: Any, at: KeyPath, source: Source) -> str:
    if key == "env":
        return f"{name}" if value is None else f"{name}={_text(value, at, source)}"
    texts = [_text(one, (*at, i), source) for i, one in enumerate(value)] if isinstance(value, list) else []
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(texts)
    return f"{name}={line.getvalue()}"


def _text(value: Any, at: KeyPath, source: Source) -> str:
    """A value as it is written in the file."""
    if isinstance(value, list | dict) or value is None:
        raise JobError(f"{source.where(at)}: this is neither text nor a number. Write one value")
    return source.numbers.get(at) or (str(value).lower() if isinstance(value, bool) else str(value))


def _is_path(key: str, text: str) -> bool:
    """Return whether a value is the path of something on this machine."""
    return key in _PATHS or (key == "sweep" and "=" not in text)


def _texts(values: Any, at: KeyPath, source: Source) -> list[str]:
    if not isinstance(values, list):
        raise JobError(f"{source.where(at)}: {at[0]} is not a list. Write a list of words: [--lr, 1e-4]")
    return [_text(value, (*at, i), source) for i, value in enumerate(values)]


def _from(file: Path, path: str) -> str:
    """A path as it is seen from the folder of a file."""
    return path if Path(path).is_absolute() or not Path(path).exists() else os.path.relpath(path, file.parent)


def read_variables(file: Path) -> dict[str, str]:
    """The variables of a file. A name without a value takes it from this process. No message has a value: they may be secrets.

    Raises:
        JobError: it cannot be read, or a line is not a variable; the message has its number.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise JobError(f"--env-file {file} has more than {_MOST_BYTES:,} bytes. Give a file of variables")
        text = file.read_text("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise JobError(f"--env-file {file} is not text. Save it as UTF-8") from None
    except (OSError, ValueError) as e:  # ValueError: a NUL byte in the path
        reason = e.strerror if isinstance(e, OSError) else "its name has a NUL byte"
        raise JobError(f"cannot read --env-file {str(file)[:200]!r}: {reason}. {fix_of_path(file)}") from None
    return dict(_variables(text, str(file)))


def _variables(text: str, file: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        line = f"{file} line {text.count(chr(10), 0, at) + 1}"
        if empty := _EMPTY.match(text, at):
            at = empty.end() + 1
            continue
        found = _LINE.match(text, at)
        if not found or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", found["name"]):
            raise JobError(f"{line} is not a variable. Write NAME=VALUE, with quotes around a value of several lines")
        yield found["name"], _value(found, line)
        at = found.end() + 1


def _value(found: re.Match[str], line: str) -> str:
    name, given = found["name"], next((v for v in found.group("plain", "quoted", "bare") if v is not None), None)
    if given is None:
        if name not in os.environ:
            raise JobError(
                f"{line} has a name without a value, and your shell does not set it. Write NAME=VALUE, or set it"
            )
        return os.environ[name]
    if found["plain"] is not None:
        return given
    if found["bare"] is not None and given[:1] in ("'", '"'):
        raise JobError(
            f"{line}: the value of {name} has a quote without its end, or text after it. Write one pair of quotes"
        )
    if re.search(r"(?<!\\)\$\{", given):
        raise JobError(
            f"{line}: {name} has ${{...}}, which nothing replaces here. Write the value itself; in single quotes, ${{ is part of it"
        )
    if found["bare"] is not None:
        return given
    return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[0]), given, flags=re.DOTALL)
