"""Findings of scanners, and what is scanned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
REPOSITORY = "repository"
"""Subject of findings that do not depend on an environment."""


@dataclass(frozen=True, order=True)
class Finding:
    """One finding of a scanner."""

    scanner: str
    rule: str
    """The scanner's name of the rule: `CKV_AWS_158`, `AwsSolutions-IAM5[Resource::*]`."""
    subject: str
    """`<stack>/<environment>`, or `repository`."""
    resource: str
    """A logical id of the template, or a file of the repository."""
    message: str = field(compare=False)


@dataclass(frozen=True)
class Subjects:
    """What is scanned.

    Args:
        templates: subject -> its template as JSON, all in one folder: most scanners start slowly but read a whole folder.
        regions: subject -> the region that its template is deployed to. Default: us-east-1.
        scripts: `<subject>:<name>` -> a script of a job.
        objects: `<subject>:<name>` -> Kubernetes objects, as YAML, all in one folder.
    """

    templates: Mapping[str, Path] = field(default_factory=dict)
    regions: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, Path] = field(default_factory=dict)
    objects: Mapping[str, Path] = field(default_factory=dict)

    def of_template(self, name: str) -> str:
        """The subject of a template's file, in any form of the path that a scanner prints."""
        return next(subject for subject, path in self.templates.items() if path.name == Path(name).name)

    def of_objects(self, name: str) -> str:
        """The subject of a file of Kubernetes objects, with the name of the objects."""
        return next(subject for subject, path in self.objects.items() if path.name == Path(name).name)


class ScannerFailed(RuntimeError):
    """A scanner did not finish: not the same as no finding."""
