"""Advice about versions can be followed: what a message says to write is accepted, without a word about support."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from sandbox.paths import HOME as ROOT
from tests.support import many
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.settings import Environment, Problem

TRN3 = json.loads(
    json.dumps(
        settings.load(ROOT / "tests/environments/trn3-catalog.yaml").overrides.instances["trn3.48xlarge"], default=str
    )
)
TYPES = {"trn1.32xlarge": "us-west-2", "trn2.48xlarge": "us-east-2", "trn3.48xlarge": "us-east-2"}
RELEASES = (None, "2.26.1", "2.28.1", "2.30.0", "2.31.1", "2.32.0", "2.33.0")
FRAMEWORKS = (None, "torch-xla", "torch-native", "none")
_PAIR = re.compile(r"([a-z_]+)\.([a-z_]+): '?([A-Za-z0-9.-]+)'?(?:$|, | and )")


def environments() -> Iterator[tuple[str, dict[str, Any]]]:
    """Mixes of type, framework, release and system, as people write them."""
    for type, framework, release in itertools.product(TYPES, FRAMEWORKS, RELEASES):
        own = {"catalog": {"instances": {type: TRN3}}} if type == "trn3.48xlarge" else {}
        given = {"framework": framework, "neuron_release": release}
        base = {"region": TYPES[type], "bootstrap": {k: v for k, v in given.items() if v}, **own}
        nodes = [{"name": "q", "compute_resources": [{"instance_type": type, "max_nodes": 4}]}]
        for os in (None, "ubuntu2404", "ubuntu2204", "alinux2023"):
            for engine, section in (("slurm", "pcluster"), ("pcs", "pcs")):
                if engine == "slurm" or os in (None, "ubuntu2404"):  # PCS has images of Ubuntu 24.04 alone
                    yield engine, {**base, section: {"queues": nodes} | ({"os": os} if os else {})}
        for ami in (None, "20260403", "20260625", "20260714"):
            group = {"node_groups": [{"name": "g", "instance_type": type, "max_nodes": 4}]}
            yield "eks", {**base, "eks": group | ({"ami_release": ami} if ami else {})}


def about_support(env: Environment, engine: str) -> list[Problem]:
    return [p for p in checks.check(env, engine) if p.rule == "incompatible-versions"]


def followed(document: dict[str, Any], fix: str) -> dict[str, Any]:
    """The environment with what a message says to write."""
    pairs = _PAIR.findall(fix)
    assert pairs or "remove eks.ami_release" in fix, fix
    new: dict[str, Any] = json.loads(json.dumps(document))
    if "remove eks.ami_release" in fix:
        del new["eks"]["ami_release"]
    for section, key, value in pairs:
        new.setdefault(section, {})[key] = value
    return new


def test_what_a_rule_says_to_write_is_accepted() -> None:
    """And where the file names no framework, a warning's fix leads to the one that AWS recommends."""
    seen, step = 0, 5 // many(5)  # of those in a row, one alone in `make test`
    for engine, document in [*environments()][::step]:
        env = settings.parse(json.dumps(document))
        for problem in about_support(env, engine):
            if problem.level == "info":
                continue
            seen += 1
            after = settings.parse(json.dumps(followed(document, problem.fix)))
            assert about_support(after, engine) == [], (document, problem.fix)
            [type] = {n.resource.instance_type for n in env.sections[engine].nodes()}
            recommended = env.catalog.recommended(type)
            assert recommended
            if problem.level == "warning" and "framework" not in document["bootstrap"]:
                assert after.framework == recommended.framework, (document, problem.fix)
    assert seen > 500 // step
