"""Texts with a form, such as names and addresses: each has a pattern for the machine, and words and an example for people. Also texts
whose value comes later, the types that an annotation allows, and numbers, times and lists in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError, ValidatorFunctionWrapHandler
from pydantic_core import PydanticCustomError, core_schema

MISMATCH = "pattern"
"""Type of the error of a text without its form. Its context has `fix`."""


S3_FOLDER = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_][A-Za-z0-9_.=+@-]*)*"
"""Regular expression of a place in S3 for files of jobs: a bucket and a prefix, without IAM's wildcards and a shell's signs."""
TOKEN = "${Token["  # noqa: S105  not a secret
"""How the CDK's tokens begin. CloudFormation fills them in at deployment, so that they cannot be checked here."""
LIST_TOKEN = "#{Token["  # noqa: S105  not a secret
"""How the one element of a list begins whose elements are not known."""
LOOKUP = "dummy-value-for-"
"""What the CDK puts in place of a value that it looks up after the first synthesis (`value_from_lookup`)."""
_DUMMY_VPC = ("vpc-12345", "1.2.3.4/5")
"""Id and network of a VPC that the CDK has not looked up yet (`Vpc.from_lookup`)."""
PLACEHOLDERS = (TOKEN, LOOKUP)
"""Marks of values that come later, so that they cannot be checked here. An environment file cannot have them."""
DYNAMIC = "{{resolve:"
"""How CloudFormation's dynamic references begin. It fills them in, too."""


@dataclass(frozen=True)
class Text:
    """The form of a text, as metadata of its type: `Annotated[str, Text(r"^[0-9]+$", "digits", "12")]`.

    A text without it is refused with the words and the example. The pattern itself is only in the JSON schema, for editors.

    Attributes:
        regex: a regular expression, anchored.
        words: what to write. It follows "write".
        example: a text that has the form.
        min_length, max_length: in characters.
    """

    regex: str
    words: str
    example: str
    min_length: int | None = None
    max_length: int | None = None

    @property
    def fix(self) -> str:
        """The words and the example, which is in quotes where YAML would read a number."""
        number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", self.example)
        return self.words + ", for example " + (f'"{self.example}"' if number else self.example)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        text = core_schema.str_schema(pattern=self.regex, min_length=self.min_length, max_length=self.max_length)
        return core_schema.no_info_wrap_validator_function(self._checked, text)

    def _checked(self, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError as e:
            if e.errors()[0]["type"] != "string_pattern_mismatch":
                raise
            raise PydanticCustomError(
                MISMATCH, "it does not have the required form; write {fix}", {"fix": self.fix}
            ) from None


def fix_of(model: type[BaseModel], key: str) -> str:
    """Return the fix for a model's field that is or may be text with a form; empty for others."""
    field = model.model_fields.get(key)
    found = [one for one in field.metadata if isinstance(one, Text)] if field else []
    for kind in (field.annotation, *get_args(field.annotation)) if field else ():
        found += [one for one in getattr(kind, "__metadata__", ()) if isinstance(one, Text)]
    return found[0].fix if found else ""


def is_placeholder(text: str) -> bool:
    """Return whether a text's value comes later: it has a token, the placeholder of a lookup, or a dynamic reference."""
    return text in _DUMMY_VPC or any(mark in text for mark in (*PLACEHOLDERS, LIST_TOKEN, DYNAMIC))


def choices(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, without Annotated and unions; the type of None is one.

    >>> list(choices(Annotated[int, "GiB"] | None))
    [<class 'int'>, <class 'NoneType'>]
    """
    if get_origin(annotation) in (Union, UnionType):
        for choice in get_args(annotation):
            yield from choices(choice)
    elif get_origin(annotation) is Annotated:
        yield from choices(get_args(annotation)[0])
    else:
        yield type(None) if annotation is None else annotation


def counted(number: int, noun: str, several: str = "") -> str:
    """A number with its noun, and with what depends on the number.

    >>> counted(1, "file"), counted(2000, "file"), counted(2, "address"), counted(0, "job runs", "jobs run")
    ('1 file', '2,000 files', '2 addresses', '0 jobs run')
    """
    return f"{number:,} {noun if number == 1 else several or noun + ('es' if noun.endswith('s') else 's')}"


def duration(seconds: float | None, unknown: str = "not known") -> str:
    """A time span, with its two largest units; 0 s for a negative one, as of a clock that is behind the cluster's.

    >>> [duration(s) for s in (-5, 0.4, 59, 61, 3_725, 100_000)]
    ['0 s', '0 s', '59 s', '1 min 1 s', '1 h 2 min', '1 d 3 h']
    """
    if seconds is None:
        return unknown
    left = max(0, round(seconds))
    units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)]
    parts = []
    for unit, size in units:
        count, left = divmod(left, size)
        parts.append(f"{count} {unit}")
    first = next((i for i, part in enumerate(parts) if not part.startswith("0 ")), len(parts) - 1)
    return " ".join(part for part in parts[first : first + 2] if part == parts[first] or not part.startswith("0 "))


def join_words(items: Iterable[object], last: str = "and") -> str:
    """Items joined as in a sentence: `a, b and c`."""
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {last} {texts[-1]}" if texts else "none"
