"""The offline rules over what the arguments of a construct describe: errors fail the synthesis, warnings are shown by the CDK's command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from aws_cdk import Annotations
from constructs import Construct

from trainium_cdk.cdk.helpers.rules import fail_synthesis, known, likely_regions, region_of
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.checks import Rule
from trainium_cdk.description.checks.capacity import unknown_instance_type
from trainium_cdk.description.checks.pcluster import reserved_tags
from trainium_cdk.description.checks.rule import rule_id
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.base import Settings
from trainium_cdk.errors import SettingsError
from trainium_cdk.problems import KeyPath, Source, errors

Model = TypeVar("Model", bound=Settings)


@dataclass(frozen=True)
class Described:
    """Arguments of a construct, described as a part of an environment.

    Attributes:
        construct: whose arguments they are.
        arguments: where an environment has them -> the argument, or nothing for several together. Problems of other keys are ignored, but
            not the region's.
        engine: problems of other engines are ignored. Default: none is.
    """

    construct: Construct
    arguments: Mapping[KeyPath, str]
    engine: str | None = None

    def environment(
        self, catalog: Catalog | None = None, *, regions: Sequence[str] = (), **sections: Any
    ) -> Environment:
        """The environment of these sections, in the region of the construct's stack.

        Args:
            regions: which one may be meant in a stack of any region: the first.

        Raises:
            SettingsError: sections contradict each other.
        """
        try:
            made = Environment(region=region_of(self.construct, regions), **sections)
        except SettingsError as e:
            raise self._error(e.problems) from None
        return made.with_catalog(catalog) if catalog else made

    def changed(self, at: KeyPath, model: Model, **changes: object) -> Model:
        """The settings at a key, with changes.

        Raises:
            SettingsError: a change is not valid.
        """
        try:
            return type(model)(**{name: getattr(model, name) for name in model.model_fields_set} | changes)
        except SettingsError as e:
            raise self._error([replace(problem, key=(*at, *problem.key)) for problem in e.problems]) from None

    def check(self, environment: Environment, rules: Iterable[Rule]) -> None:
        """Register the problems that rules find."""
        self.register(self.found(environment, rules))

    def require(self, environment: Environment, *rules: Rule) -> None:
        """Raises SettingsError for problems with which the construct cannot even be built."""
        if found := errors(self.found(environment, rules)):
            raise self._error(found)

    def found(self, environment: Environment, rules: Iterable[Rule]) -> list[Problem]:
        """Run rules and return the problems of these arguments, each with its rule's name."""
        found = [replace(problem, rule=rule_id(rule)) for rule in rules for problem in rule(environment)]
        ours = [p for p in found if self.engine is None or p.engine in {None, self.engine}]
        return [p for p in ours if p.key == ("region",) or self._at(p.key)]

    def register(self, problems: Iterable[Problem]) -> None:
        """Warnings for the CDK's command line, and errors that fail the synthesis."""
        named = [self._named(problem) for problem in problems]
        for problem in named:
            if problem.level == "warning":
                Annotations.of(self.construct).add_warning_v2(f"trn:{problem.rule}", problem.text)
        fail_synthesis(self.construct, [problem.text for problem in errors(named)])

    def _error(self, problems: Iterable[Problem]) -> SettingsError:
        return SettingsError([self._named(each) for each in problems], Source(self.construct.node.path))

    def _at(self, key: KeyPath) -> KeyPath | None:
        """The longest part of a key that is an argument."""
        return max((at for at in self.arguments if key[: len(at)] == at), key=len, default=None)

    def _named(self, problem: Problem) -> Problem:
        """The problem with the argument in place of the path in an environment."""
        at = self._at(problem.key)
        argument = self.arguments[at] if at else ""
        key = (*([argument] if argument else []), *problem.key[len(at) :]) if at else problem.key
        return replace(problem, key=key, reason=self._text(problem.reason), fix=self._text(problem.fix))

    def _text(self, text: str) -> str:
        """A text with arguments in place of keys with dots."""
        for at, argument in sorted(self.arguments.items(), key=lambda item: -len(item[0])):
            dotted = re.escape(".".join(map(str, at)))
            end = r"(?!\w)" if len(at) > 1 else r"(?=\.\w)"
            text = re.sub(rf"(?<![\w.]){dotted}{end}", argument, text) if argument else text
        return text


def describe_slurm(
    construct: Construct,
    section: str,
    engine: str,
    cluster: Model,
    arguments: Mapping[str, tuple[str, object]],
    *,
    mounts: Mapping[str, str],
    catalog: Catalog,
    required: Sequence[Rule],
    rules: Iterable[Rule],
    **changes: object,
) -> Environment:
    """The environment that a Slurm cluster and its file systems describe.

    Args:
        section: of the environment, which the cluster's settings are.
        arguments: of the construct, by name, in place of parts of the cluster: the part's key, and the value; None for the cluster's own.
        mounts: where each kind of file system is mounted.
        catalog: has the instance types of the queues.
        required: rules without which the cluster cannot be built, in addition to a known instance type.
        rules: whose problems are registered.
        changes: of the cluster, by key.

    Raises:
        SettingsError: a value is not valid, or a required rule finds an error.
    """
    given = {name: (key, value) for name, (key, value) in arguments.items() if value is not None}
    own: dict[KeyPath, str] = {(section, key): name for name, (key, _) in given.items()}
    described = Described(construct, {(section,): "cluster"} | own, engine)
    changed: Any = described.changed((section,), cluster, **changes | dict(given.values()))
    resources = [resource for queue in changed.queues for resource in queue.compute_resources]
    environment = described.environment(
        catalog,
        regions=likely_regions(catalog, resources),
        storage={"efs": None, "fsx": None} | {kind: {"mount_dir": at} for kind, at in mounts.items()},
        **{section: changed},
    )
    described.require(environment, unknown_instance_type, *required)
    described.check(environment, rules)
    return environment


def tag_problems(construct: Construct, tags: Mapping[str, str]) -> list[str]:
    """Return the problems of each tag. Tokens are not checked, nor how many tags there are."""
    described = Described(construct, {("tags",): "tags"})
    try:
        found = described.found(described.environment(tags=known(tags)), (reserved_tags,))
    except SettingsError as e:
        found = list(e.problems)
    return [problem.text for problem in errors(found) if problem.key != ("tags",)]
