"""The offline rules for one construct in any app: errors fail the synthesis, warnings are shown by the CDK's command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jsii
from aws_cdk import Annotations, Stack
from constructs import Construct, IValidation

from trainium_cdk import settings
from trainium_cdk.catalog import Catalog
from trainium_cdk.checks import Rule
from trainium_cdk.checks.pcluster import reserved_tags
from trainium_cdk.checks.rule import rule_id
from trainium_cdk.problems import KeyPath, Source, errors, show
from trainium_cdk.settings import Problem
from trainium_cdk.settings.cdk_types import LIST_TOKEN, LOOKUP, NUMBER_TOKEN, PLACEHOLDERS
from trainium_cdk.settings.reserved import group_region
from trainium_cdk.settings.section import Sized
from trainium_cdk.settings.slurm import SlurmQueue

REGION_NAMES: dict[str, str] = {}
"""Names for the problems of a construct that has the arguments `catalog` and `rules`, and its stack's region."""
# also the network that the CDK gives a VPC before it is looked up (`Vpc.from_lookup`), and CloudFormation's dynamic references
_PLACEHOLDERS = (*PLACEHOLDERS, LIST_TOKEN, "1.2.3.4/5", "{{resolve:")


@dataclass(frozen=True)
class Arguments:
    """The arguments of a construct, as the part of an environment that describes it.

    Attributes:
        construct: whose arguments they are.
        at: the key below which an environment describes the construct; problems of other keys are ignored, except the region's.
        names: name of the key in an environment -> name of the argument; also for a longer key (`pcluster.os`), and for other words of
            a message. Default: the names are equal.
        engine: ignore problems of other engines. Default: report those of all.
    """

    construct: Construct
    at: KeyPath
    names: Mapping[str, str] = field(default_factory=dict)
    engine: str | None = None

    def check(self, data: Mapping[str, Any], rules: Iterable[Rule]) -> None:
        """Register problems of the arguments, with the text of `trn check`.

        Args:
            data: the environment that describes the construct, as plain data without tokens (see `known`).
            rules: the rules that apply to it.
        """
        self.register(self.found(data, rules))

    def found(self, data: Mapping[str, Any], rules: Iterable[Rule]) -> list[Problem]:
        """The same problems, not registered."""
        try:
            return self._found(settings.validate(data), rules)
        except settings.SettingsError as e:
            return list(e.problems)

    def check_environment(self, environment: settings.Environment, rules: Iterable[Rule]) -> None:
        """Register the problems of an environment."""
        self.register(self._found(environment, rules))

    def _found(self, environment: settings.Environment, rules: Iterable[Rule]) -> list[Problem]:
        found = [replace(problem, rule=rule_id(rule)) for rule in rules for problem in rule(environment)]
        return [p for p in found if self.engine is None or p.engine in {None, self.engine}]

    def register(self, found: Iterable[Problem]) -> None:
        """Warnings for the CDK's command line, and errors that fail the synthesis."""
        problems = [p for p in found if p.key[: len(self.at)] == self.at or p.key == ("region",)]
        for problem in problems:
            if problem.level == "warning":
                Annotations.of(self.construct).add_warning_v2(f"trn:{problem.rule}", self.text(problem))
        fail_synthesis(self.construct, [self.text(problem) for problem in errors(problems)])

    def of_slurm(
        self,
        mount_dirs: Mapping[str, str],
        queues: Sequence[SlurmQueue],
        catalog: Catalog,
        values: Mapping[str, Any],
    ) -> settings.Environment:
        """The environment of a Slurm cluster in any app. Raises as `validated` does.

        Args:
            mount_dirs: of its file systems, by kind (`efs`, `fsx`).
            catalog: has the instance types of the queues.
            values: further values of its section; None for those that are not given.
        """
        types = {r.instance_type for queue in queues for r in queue.compute_resources} & set(catalog.instances)
        regions = [set(catalog.regions_of(kind)) for kind in types]
        likely = [
            region for queue in queues for r in queue.compute_resources if (region := group_region(r.reservation))
        ]
        likely += sorted(set.intersection(*regions)) if regions else []
        return self.validated(
            {
                "region": region_of(self.construct, likely),
                "storage": {"efs": None, "fsx": None} | {kind: {"mount_dir": d} for kind, d in mount_dirs.items()},
                str(self.at[0]): {"queues": tuple(queues)} | {k: v for k, v in values.items() if v is not None},
                **own_entries(catalog, sorted(types)),
            }
        )

    def validated(self, data: Mapping[str, Any]) -> settings.Environment:
        """The environment that describes the construct.

        Raises:
            SettingsError: a value is not valid. It names the construct and the arguments.
        """
        try:
            return settings.validate(data)
        except settings.SettingsError as e:
            raise self._error(e.problems) from None

    def require(self, environment: settings.Environment, *rules: Rule) -> None:
        """Raises SettingsError for problems with which the construct cannot even be built."""
        if found := errors(problem for rule in rules for problem in rule(environment)):
            raise self._error(found)

    def _error(self, problems: Iterable[Problem]) -> settings.SettingsError:
        return settings.SettingsError([self._worded(each) for each in problems], Source(self.construct.node.path))

    def text(self, problem: Problem) -> str:
        """A problem in the words of the arguments."""
        own = self._worded(problem)
        text = f"{own.reason}. Fix: {own.fix}."
        return f"{own.dotted} = {show(own.value)}: {text}" if own.key else text

    def _worded(self, problem: Problem) -> Problem:
        """The problem with the names of arguments in place of keys."""
        key = problem.key[len(self.at) :] if problem.key[: len(self.at)] == self.at else problem.key

        def worded(text: str) -> str:
            text = text.replace(".".join(map(str, (*self.at, ""))), "")
            for words in (name for name in self.names if not name.isidentifier()):
                text = text.replace(words, self.names[words])
            # keys, for example `max_nodes`, `capacity_type: spot` or `fsx`; not the same words in a sentence
            return re.sub(r"\b[a-z]+(_[a-z]+)+\b|\b[a-z]+(?=: )|\bfsx\b", lambda m: self.names.get(m[0], m[0]), text)

        return replace(problem, key=self._argument(key), reason=worded(problem.reason), fix=worded(problem.fix))

    def _argument(self, key: KeyPath) -> KeyPath:
        """The key with the argument's name in place of its longest part that has one."""
        for end in range(len(key), 0, -1):
            part = ".".join(step for step in key[:end] if isinstance(step, str))
            if part in self.names and isinstance(key[end - 1], str):
                return (self.names[part], *key[end:])
        return key


def fail_synthesis(construct: Construct, texts: list[str]) -> None:
    """Fail the synthesis with these errors of a construct, if there are any."""
    if texts:
        construct.node.add_validation(_Errors(texts))


def tag_problems(construct: Construct, tags: Mapping[str, str]) -> list[str]:
    """What is wrong with each of some tags. Tokens are not checked, nor how many tags there are."""
    arguments = Arguments(construct, ())
    found = arguments.found({"tags": known(tags)}, (reserved_tags,))
    return [arguments.text(each) for each in errors(found) if each.key != ("tags",)]


def unresolved(value: object) -> bool:
    """Whether a value is a CDK token or another placeholder, or holds one. (The CDK's own check sends a message to Node for each
    value.)"""
    if isinstance(value, str):
        return any(mark in value for mark in _PLACEHOLDERS)
    if isinstance(value, int | float):
        return value <= NUMBER_TOKEN
    if isinstance(value, Mapping):
        return any(unresolved(each) for pair in value.items() for each in pair)
    return isinstance(value, list | tuple) and any(map(unresolved, value))


def refuse_tokens(construct: Construct, **values: object) -> None:
    """Raises ValueError for an argument that must be known at synthesis."""
    refuse_lookups(construct, **values)
    for name, value in values.items():
        if unresolved(value):
            raise ValueError(
                f"{construct.node.path}: {name} is a token of the CDK, which has no value before the deployment: give a plain value"
            )


def refuse_lookups(construct: Construct, **values: object) -> None:
    """Raises ValueError for the placeholder of a lookup. The CDK's command line looks up values after the first synthesis, and
    only if that succeeds."""
    for name, value in values.items():
        if LOOKUP in str(value):
            raise ValueError(
                f"{construct.node.path}: {name} is not looked up yet in the first synthesis, and must be known there: "
                "give value_from_lookup a default_value"
            )


def own_entries(catalog: Catalog, instance_types: Iterable[str]) -> dict[str, Any]:
    """The section of an environment for what the caller has added to the catalogue, or changed: these types, and regions."""
    ours = Catalog.load()
    kinds = {name: catalog.instances[name] for name in instance_types if name in catalog.instances}
    changed = {n: kind.model_dump(exclude={"name"}) for n, kind in kinds.items() if ours.instances.get(n) != kind}
    regions = dict(catalog.zone_regions.items() - ours.zone_regions.items())
    return {"catalog": {"instances": changed, "regions": regions}} if changed or regions else {}


def known(values: Mapping[str, Any]) -> dict[str, Any]:
    """The given values without tokens."""
    return {k: v for k, v in values.items() if v is not None and not unresolved(v)}


def likely_regions(catalog: Catalog, nodes: Iterable[Sized]) -> list[str]:
    """Regions that nodes in a stack of any region may be for: those of their reservations, then those that offer all of their types."""
    nodes = list(nodes)
    offered = [set(catalog.regions_of(each.instance_type)) for each in nodes if each.instance_type in catalog.instances]
    named = [region for each in nodes if (region := group_region(each.reservation))]
    return named + (sorted(set.intersection(*offered)) if offered else [])


def region_of(construct: Construct, otherwise: Sequence[str]) -> str:
    """The region of the construct's stack; for an agnostic stack, the first of `otherwise`."""
    region = Stack.of(construct).region
    return next(iter(otherwise), "us-east-1") if unresolved(region) else region


@jsii.implements(IValidation)
class _Errors:
    def __init__(self, texts: list[str]) -> None:
        self._texts = texts

    def validate(self) -> list[str]:
        return self._texts
