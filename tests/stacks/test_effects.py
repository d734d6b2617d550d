"""A setting that is written has an effect, or a finding says that it has none."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.stacks.synthesis import EKS, PCS, ROOT, SLURM
from tests.support import swept
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.settings import Environment

STACKS = {stacks.engine: stacks for stacks in (SLURM, EKS, PCS)}
FILES = sorted(
    str(file.relative_to(ROOT / "tests"))
    for folder in ("environments", "production")
    for file in (ROOT / "tests" / folder).rglob("*.yaml")
)
FACTS = ("catalog", "network.existing")
"""They describe what exists; checks read them."""
AUTOMATIC = {
    "bootstrap.framework": "none",
    "bootstrap.neuron_release": "2.27.0",
    "eks.version": "1.34",
    "pcs.version": "25.05",
    "placement_group": "off",
    "node_groups.0.placement_group": "on",
    "queues.0.placement_group": "on",
    "efa": "off",
    "namespace": "other",
    "QueueUpdateStrategy": "TERMINATE",
}
"""The end of a key whose default may be the value that is written -> another value, which has an effect."""
Steps = tuple[str | int, ...]


def outcome(env: Environment, engine: str) -> tuple[Any, ...]:
    """The template and what is reported; without a template where there are errors."""
    found = checks.check(env, engine)
    reported = [(problem.dotted, problem.level, problem.reason) for problem in found]
    wrong = any(problem.level == "error" for problem in found)
    return (None if wrong else STACKS[engine].template_of(env).to_json(), reported)


def leaves(value: Any, at: Steps = ()) -> Iterator[Steps]:
    """Key paths of what is written, and has no parts."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not parts or value in ({}, []):
        yield at
    for key, part in parts:
        yield from leaves(part, (*at, key))


def changed(data: dict[str, Any], at: Steps) -> Iterator[Environment]:
    """The environment without a setting, and with another value of it; not those that are no environment."""
    name = ".".join(map(str, at))
    others = [value for end, value in AUTOMATIC.items() if name == end or name.endswith(f".{end}")]
    for value in [None, *others]:
        copied = copy.deepcopy(data)
        section: Any = copied
        for key in at[:-1]:
            section = section[key]
        if value is None:
            del section[at[-1]]
        else:
            section[at[-1]] = value
        try:
            yield settings.validate(copied)
        except settings.SettingsError:
            continue


def engines(env: Environment) -> list[str]:
    """Those that it describes; if it names none, those that it suits."""
    named = [name for name in env.engines if name in STACKS]
    suits = [name for name in named if not any(p.level == "error" for p in checks.check(env, name))]
    return suits if len(named) > 1 else named


@pytest.mark.parametrize(
    "file",
    swept(
        FILES,
        "environments/trn1n-spot.yaml",
        "environments/pcs/trn2-capacity-block.yaml",
    ),
)
def test_what_an_environment_sets_has_an_effect(file: str) -> None:
    data: dict[str, Any] = yaml.safe_load((ROOT / "tests" / file).read_text("utf-8")) or {}
    env = settings.validate(data)
    used = engines(env)
    before = [outcome(env, engine) for engine in used]
    silent = []
    for at in leaves(data):
        name = ".".join(map(str, at))
        others = [other for other in changed(data, at) if other.model_dump() != env.model_dump()]
        if name.startswith(FACTS) or not others:
            continue
        if all([outcome(other, engine) for engine in used] == before for other in others):
            silent.append(name)
    assert silent == []
