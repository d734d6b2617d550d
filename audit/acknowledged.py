"""What is known, and why it stays: `acknowledged.yaml`.

An entry that matches nothing any more is itself an error, so that the file never says more than there is.
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
    """Findings that stay for one and the same reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(min_length=40)
    resources: _Patterns
    """Logical ids, without the eight characters that the CDK puts behind them, or files. `*` stands for a name that an environment
    gives (`Group*Template`), or for any file of a folder; never for all resources of a kind."""
    rules: dict[str, _Patterns]
    """Judge -> patterns of its rules. `*` stands for anything; everything else, brackets too, for itself."""
    subjects: list[str] = ["*"]
    """Patterns of subjects."""

    @field_validator("resources")
    @classmethod
    def _names(cls, patterns: list[str]) -> list[str]:
        kinds = [p for p in patterns if "/" not in p and (p.startswith("*") or p.endswith("*"))]
        if kinds:
            raise ValueError(f"{', '.join(kinds)}: name the resources; what nobody has written yet is not acknowledged")
        return patterns

    def matches(self, finding: Finding) -> bool:
        """Whether this entry is about a finding."""
        return (
            any(_like(finding.rule, p) for p in self.rules.get(finding.judge, []))
            and any(_like(_named(finding), p) for p in self.resources)
            and any(_like(finding.subject, p) for p in self.subjects)
        )

    def unused(self, matched: Iterable[Finding]) -> list[str]:
        """Its patterns that none of the findings it matched needs."""
        found = list(matched)
        return [
            *(p for p in self.resources if not any(_like(_named(f), p) for f in found)),
            *(p for p in self.subjects if not any(_like(f.subject, p) for f in found)),
            *(
                f"{judge} {p}"
                for judge, patterns in self.rules.items()
                for p in patterns
                if not any(f.judge == judge and _like(f.rule, p) for f in found)
            ),
        ]


@dataclass(frozen=True)
class Sorted:
    """Findings, with what is known of them."""

    open: list[Finding]
    acknowledged: list[tuple[Finding, Entry]]
    stale: list[str]
    """Patterns of entries that nothing needs, each with its entry's reason."""


def load(path: Path = FILE) -> list[Entry]:
    """The entries of a file.

    Raises:
        pydantic.ValidationError: it says what is not known here, or gives no reason.
    """
    return [Entry.model_validate(entry) for entry in YAML(typ="safe").load(path.read_text("utf-8")) or []]


def sort(findings: Iterable[Finding], entries: Iterable[Entry]) -> Sorted:
    """Each finding goes to every entry that matches it, and counts for the first."""
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
    """A resource without the CDK's hash."""
    return re.sub(r"[0-9A-F]{8}$", "", finding.resource)


def _like(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))
