"""A sweep of values: an array whose members differ in arguments of their script. Pure, but for the file of `--sweep`.

A member gets each value as the argument `--NAME=VALUE`, after the others. Where ARGS has `{NAME}`, the value is there instead. It is also in
the variable `TRN_SWEEP_NAME`.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainium_cdk.client.jobs.words import shown, wrong
from trainium_cdk.errors import fix_of_path
from trainium_cdk.runner.spec import MAX_MEMBERS, Part, Place, Sweep, Word, Words

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_MOST_CHARACTERS = 1000
_FORM = "Write NAME=VALUE,VALUE, for example lr=1e-4,3e-4, or a file: values.csv"


def as_array(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job with its sweep read, and the array of its members."""
    if given.get("array") is not None:
        raise wrong("sweep and array are both given, and a sweep is its own array. Remove --array")
    made = read(given["sweep"])
    return {**given, "sweep": made, "array": f"0-{len(made.rows) - 1}"}


def read(given: Any) -> Sweep:
    """A sweep as a user gives it: a mapping of names to values, each combination being a member; a list of mappings, one for each member;
    or the texts of `--sweep`."""
    if isinstance(given, Sweep):
        return given
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        return _product([(str(name), values) for name, values in given.items()])
    if not isinstance(given, list | tuple) or not given:
        raise wrong(f"sweep is {shown(given)}: no names with values. {_FORM}")
    if all(isinstance(one, Mapping) for one in given):
        return _rows([(f"member {at}", one) for at, one in enumerate(given)])
    texts = [str(one) for one in given]
    files = [text for text in texts if text.endswith(".csv") and "=" not in text]
    if not files:
        return _product([_parse(text) for text in texts])
    if len(texts) > 1:
        raise wrong(f"--sweep {files[0]} has a row for each member. Give it alone, and write the other values into it")
    return _rows(list(_of_file(Path(files[0]))))


def check(sweep: Sweep, args: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuses a job whose own arguments or variables have a swept name."""
    for name in sweep.names:
        if any(word == f"--{name}" or word.startswith(f"--{name}=") for word in args if f"{{{name}}}" not in word):
            raise wrong(f"--{name} is among the arguments of the script, and swept. Remove one of them")
        if _variable(name) in env:
            raise wrong(f"env {_variable(name)}: it has the member's value of {name}. Choose another name")


def words(sweep: Sweep, args: Sequence[str]) -> Words:
    """The arguments of a member: the job's, and its values."""
    own = re.compile("|".join(re.escape(f"{{{name}}}") for name in sweep.names))
    placed = {found for word in args for found in own.findall(word)}
    rest: list[Word] = [(f"--{name}=", Place(f"sweep.{name}")) for name in sweep.names if f"{{{name}}}" not in placed]
    return (*(_with_places(word, own) for word in args), *rest)


def variables(sweep: Sweep) -> dict[str, Word]:
    """The variables of a member."""
    return {_variable(name): (Place(f"sweep.{name}"),) for name in sweep.names}


def describe(sweep: Sweep) -> str:
    """A sweep in one line: its members, and the values of the first and the last one."""
    first, last = (
        " ".join(f"{name}={value}" for name, value in zip(sweep.names, row, strict=True))
        for row in (sweep.rows[0], sweep.rows[-1])
    )
    return f"{len(sweep.rows)} members: {first}" + (f" to {last}" if len(sweep.rows) > 1 else "")


def _with_places(word: str, own: re.Pattern[str]) -> Word:
    if not own.search(word):
        return word
    parts: list[Part] = []
    at = 0
    for found in own.finditer(word):
        parts += [word[at : found.start()], Place(f"sweep.{found[0][1:-1]}")]
        at = found.end()
    return tuple(part for part in (*parts, word[at:]) if part)


def _variable(name: str) -> str:
    return f"TRN_SWEEP_{re.sub(r'[^A-Z0-9]', '_', name.upper())}"


def _parse(text: str) -> tuple[str, list[str]]:
    """Read `lr=1e-4,3e-4`. A value with a comma needs double quotes."""
    name, equals, values = text.partition("=")
    if not equals:
        raise wrong(f"--sweep {shown(text)} has no values. {_FORM}")
    read = next(csv.reader([values], skipinitialspace=True), [])
    if half := next((one for one in read if one[:1] in "[(" and one[-1:] not in "])"), None):
        raise wrong(
            f"--sweep {name} has the value {shown(half)}, half of a list. Leave out brackets, or write the list in double quotes"
        )
    return name, read


def _product(given: Sequence[tuple[str, Any]]) -> Sweep:
    names = _names([name for name, _ in given])
    every: list[list[str]] = []
    for name, values in given:
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise wrong(f"sweep: {name} has no values. Write {name}=VALUE,VALUE, or remove it")
        texts = [_text(value, name) for value in values]
        if twice := next((one for at, one in enumerate(texts) if one in texts[:at]), None):
            raise wrong(f"sweep: {name} has the value {shown(twice)} twice. Remove one of them")
        every.append(texts)
    _check_number(math.prod(map(len, every)))
    return Sweep(names, tuple(itertools.product(*every)))


def _rows(given: Sequence[tuple[str, Mapping[Any, Any]]]) -> Sweep:
    """Args: of each row, where it stands and its values."""
    if not given:
        raise wrong("sweep: the file has no members. Write one row for each")
    _check_number(len(given))
    names = _names([str(name) for name in given[0][1]])
    seen: dict[tuple[str, ...], str] = {}
    for at, row in given:
        found = {str(name): value for name, value in row.items()}
        if missing := [name for name in names if name not in found]:
            raise wrong(f"sweep: {at} has no {missing[0]}, which others have. Give all members the same names")
        if more := found.keys() - set(names):
            raise wrong(
                f"sweep: {at} has {shown(min(more))}, which others do not have. Give all members the same names"
            )
        values = tuple(_text(found[name], f"{name} of {at}") for name in names)
        if values in seen:
            raise wrong(f"sweep: {at} has the same values as {seen[values]}. Remove one of them")
        seen[values] = at
    return Sweep(names, tuple(seen))


def _names(names: Sequence[str]) -> tuple[str, ...]:
    used: dict[str, str] = {}
    if not names:
        raise wrong(f"sweep has no names. {_FORM}")
    for name in names:
        if not _NAME.fullmatch(name):
            fix = name.lstrip("-")
            hint = fix if fix != name and _NAME.fullmatch(fix) else "letters, digits and _ . -, with a letter first"
            raise wrong(f"sweep: {shown(name)} cannot be the name of an argument. Write {hint}")
        if name in used.values():
            raise wrong(f"sweep: {name} is given twice. Write all its values at once: {name}=VALUE,VALUE")
        if other := used.get(_variable(name)):
            raise wrong(f"sweep: {other} and {name} would both be the variable {_variable(name)}. Rename one of them")
        used[_variable(name)] = name
    return tuple(names)


def _text(value: Any, what: str) -> str:
    """A value as its argument. Booleans are as in JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong(f"sweep: {what} is {value}, which is not a number. Write another value")
    text = str(value) if isinstance(value, str | int | float) else ""
    if not text:
        has = "is empty" if value in ("", None) else f"is {shown(value)}, and no text or number"
        raise wrong(f"sweep: {what} {has}. Write a value")
    if len(text) > _MOST_CHARACTERS:
        raise wrong(
            f"sweep: {what} has {len(text):,} characters; {_MOST_CHARACTERS:,} are the maximum. Put it in a file, and give its path"
        )
    if not text.isprintable():
        raise wrong(f"sweep: {what} is {shown(text)}, with a character that cannot be printed. Remove it")
    return text


def _check_number(members: int) -> None:
    if members > MAX_MEMBERS:
        raise wrong(
            f"sweep has {members:,} members; {MAX_MEMBERS:,} are the maximum. Give fewer values, or several sweeps"
        )


def _of_file(file: Path) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8 text"
        raise wrong(f"cannot read the sweep {file}: {reason}. {fix_of_path(file)}") from None
    reader = csv.reader(text.splitlines(), skipinitialspace=True, strict=True)
    names: list[str] = []
    try:
        for row in reader:
            if not row:
                continue
            if not names:
                names = [name.strip() for name in row]
                if len(set(names)) < len(names):
                    raise wrong("sweep: two columns of the file have one name. Rename one of them")
            elif len(row) != len(names):
                raise wrong(
                    f"sweep: line {reader.line_num} has {len(row)} values, and the first line {len(names)} names. Write one for each"
                )
            else:
                yield f"line {reader.line_num}", dict(zip(names, (value.strip() for value in row), strict=True))
    except csv.Error as e:
        raise wrong(f"sweep: line {reader.line_num} is no CSV: {e}. Write values with commas between them") from None
