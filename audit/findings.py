"""What a judge found, and what is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
REPOSITORY = "repository"
"""The subject of what is judged once, and not for each environment."""


@dataclass(frozen=True, order=True)
class Finding:
    """One thing a judge does not like."""

    judge: str
    rule: str
    """The judge's own name of the rule: `CKV_AWS_158`, `AwsSolutions-IAM5[Resource::*]`."""
    subject: str
    """`<stack>/<environment>`, or `repository`."""
    resource: str
    """A logical id of the template, or a file of the repository."""
    message: str = field(compare=False)


@dataclass(frozen=True)
class Subjects:
    """What is judged.

    Args:
        templates: the template of each subject, as JSON, all in one folder: most judges start slowly, and read a folder in one go.
        regions: where the template of a subject is to be deployed. Default: us-east-1.
        scripts: `<subject>:<name>` -> a script of a job.
        objects: `<subject>:<name>` -> Kubernetes objects, as YAML, all in one folder.
    """

    templates: Mapping[str, Path] = field(default_factory=dict)
    regions: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, Path] = field(default_factory=dict)
    objects: Mapping[str, Path] = field(default_factory=dict)

    def of_template(self, name: str) -> str:
        """The subject of a template's file, however a judge writes its path."""
        return next(subject for subject, path in self.templates.items() if path.name == Path(name).name)

    def of_objects(self, name: str) -> str:
        """The subject of a file of Kubernetes objects, with the objects' name."""
        return next(subject for subject, path in self.objects.items() if path.name == Path(name).name)


class JudgeFailed(RuntimeError):
    """A judge did not finish, so that nothing is known: never the same as no finding."""
