"""Acknowledged findings with their reasons: `acknowledged.yaml`.

An entry that matches no finding is an error, so that the file stays up to date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator
from ruamel.yaml import YAML

from audit.findings import Finding

FILE = Path(__file__).with_name("acknowledged.yaml")
_Patterns = Annotated[list[str], Field(min_length=1)]


class Entry(BaseModel):
    """Findings that are acknowledged for the same reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(min_length=40)
    resources: _Patterns
    """Logical ids without the eight characters that the CDK appends, or files. `*` stands for a name that an environment
    gives (`Group*Template`), or for any file in a folder; never for all resources of a type."""
    rules: dict[str, _Patterns]
    """Scanner -> patterns of its rules. `*` matches anything; every other character, including brackets, is literal."""
    subjects: list[str] = ["*"]
    """Patterns of subjects."""

    @field_validator("resources")
    @classmethod
    def _names(cls, patterns: list[str]) -> list[str]:
        kinds = [p for p in patterns if "/" not in p and (p.startswith("*") or p.endswith("*"))]
        if kinds:
            raise ValueError(
                f"{', '.join(kinds)}: name the resources; resources that do not exist yet cannot be acknowledged"
            )
        return patterns

    def matches(self, finding: Finding) -> bool:
        """Whether this entry matches a finding."""
        return (
            any(_like(finding.rule, p) for p in self.rules.get(finding.scanner, []))
            and any(_like(_named(finding), p) for p in self.resources)
            and any(_like(finding.subject, p) for p in self.subjects)
        )

    def unused(self, matched: Iterable[Finding]) -> list[str]:
        """Its patterns that matched none of the findings."""
        found = list(matched)
        return [
            *(p for p in self.resources if not any(_like(_named(f), p) for f in found)),
            *(p for p in self.subjects if not any(_like(f.subject, p) for f in found)),
            *(
                f"{scanner} {p}"
                for scanner, patterns in self.rules.items()
                for p in patterns
                if not any(f.scanner == scanner and _like(f.rule, p) for f in found)
            ),
        ]


@dataclass(frozen=True)
class Sorted:
    """Findings, open and acknowledged."""

    open: list[Finding]
    acknowledged: list[tuple[Finding, Entry]]
    stale: list[str]
    """Unused patterns, each with the reason of its entry."""


def load(path: Path = FILE) -> list[Entry]:
    """The entries of a file.

    Raises:
        pydantic.ValidationError: an unknown key, or no reason.
    """
    return [Entry.model_validate(entry) for entry in YAML(typ="safe").load(path.read_text("utf-8")) or []]


def sort(findings: Iterable[Finding], entries: Iterable[Entry]) -> Sorted:
    """Each finding is matched with every entry, and counted for the first that matches."""
    all_of_them = sorted(findings)
    matches = [(entry, [f for f in all_of_them if entry.matches(f)]) for entry in entries]
    by_finding: dict[int, Entry] = {}
    for entry, matched in matches:
        for finding in matched:
            by_finding.setdefault(id(finding), entry)
    return Sorted(
        open=[f for f in all_of_them if id(f) not in by_finding],
        acknowledged=[(f, by_finding[id(f)]) for f in all_of_them if id(f) in by_finding],
        stale=[f"{p}  ({e.reason.strip()[:60]}...)" for e, matched in matches for p in e.unused(matched)],
    )


def _named(finding: Finding) -> str:
    """A logical id without the CDK's hash."""
    return re.sub(r"[0-9A-F]{8}$", "", finding.resource)


def _like(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))
