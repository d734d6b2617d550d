"""What is installed on the nodes of an EKS cluster, and what `trn` starts there, against what the nodes have."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jobs.kubernetes.conftest import fleet
from trainium_cdk import settings
from trainium_cdk.client.jobs.kubernetes.parts import devices
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.pods import Machine, Room, machine, pods
from trainium_cdk.description.checks.eks_nodes import placed, small_system_nodes, started
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.eks import Plugins

FACTS = pods()
CATALOG = Catalog.load()
OBSERVED: tuple[Any, ...] = (None, {"metrics": False}, {})
STORED: tuple[Any, ...] = (None, {"fsx": {}}, {"efs": {}, "fsx": {}})
SWITCHES = sorted(name for name, field in Plugins.model_fields.items() if field.annotation is bool)


def environments(**system: Any) -> Iterator[dict[str, Any]]:
    """Each choice of observability, storage and plug-ins."""
    base = {"region": "us-west-2"}
    for seen, stored in itertools.product(OBSERVED, STORED):
        for on in itertools.product((False, True), repeat=len(SWITCHES)):
            eks = {"system": system, "observability": seen, "plugins": dict(zip(SWITCHES, on, strict=True))}
            yield {**base, "eks": eks, **({"storage": stored} if stored else {})}


def found(env: Environment) -> list[Problem]:
    return [*small_system_nodes(env)]


def parsed(document: dict[str, Any]) -> Environment:
    return settings.parse(json.dumps(document))


def followed(document: dict[str, Any], way: str) -> dict[str, Any]:
    """The environment with one of the ways that a fix names."""
    made: dict[str, Any] = json.loads(json.dumps(document))
    for key, value in re.findall(r"([a-z_.]+): ([\w.]+)", way):
        section = made["eks"] if key.startswith("eks.") else made["eks"]["system"]
        section[key.removeprefix("eks.")] = int(value) if value.isdigit() else value
    return made


@pytest.mark.parametrize(
    ("instance_type", "has"),
    [("m5.large", Room(1930, 6903, 29)), ("r5.large", Room(1930, 14_481, 29)), ("m5.xlarge", Room(3920, 14_162, 58)),
     ("m5.4xlarge", Room(15_890, 57_691, 234)), ("t3.small", Room(1930, 1418, 11))],
)  # fmt: skip
def test_what_a_node_has_for_pods(instance_type: str, has: Room) -> None:
    """As nodeadm reserves: 6 % of the first core, 1 % of the second, and 255 MiB with 11 MiB for each pod."""
    kind = machine(instance_type)
    assert kind
    assert FACTS.allocatable(kind) == has


def test_all_that_is_installed_has_figures() -> None:
    """Every add-on, chart and part of a chart: what is added later without them is missed here."""
    named = {name for pod in FACTS.pods for name in pod.of}
    assert {*CATALOG.eks.addons, *CATALOG.eks.charts} <= named
    assert named - {*CATALOG.eks.addons, *CATALOG.eks.charts} <= {*SWITCHES, "metrics"}
    assert all(pod.source for pod in FACTS.pods)


def test_the_default_nodes_hold_all_choices() -> None:
    """And several pods of `trn` at once: four that fetch files or two that fetch models, beside readers and a TensorBoard."""
    kind = machine(settings.Environment().eks.system.instance_type)
    assert kind
    prepare = FACTS.helpers.prepare
    models, files = prepare.helper("models"), prepare.helper("files")
    beside = [Room(h.cpu, h.memory) for h in (FACTS.helpers.tensorboard, *[FACTS.helpers.reader] * 4)]
    for document in environments():
        env = parsed(document)
        assert found(env) == []
        own = FACTS.installed(env.eks_parts, "every")
        node = FACTS.allocatable(kind)
        for pod in own:
            node = node.less(pod.room)
        controllers = [pod.room for pod in FACTS.installed(env.eks_parts, "system") for _ in range(pod.count)]
        for several in ([Room(models.cpu, models.memory)] * 2, [Room(files.cpu, files.memory)] * 4):
            free = [node] * env.eks.system.nodes
            for wanted in (*controllers, *several, *beside):
                free = placed(free, wanted, kind)
                assert free, (document, wanted)


@pytest.mark.parametrize(
    "system",
    [{"instance_type": t, "nodes": n, "max_nodes": 4} for t in ("m5.large", "c5.large", "r5.large", "t3.medium", "t3.micro", "m5.4xlarge")
     for n in (1, 2, 4)],
    ids=lambda s: f"{s['nodes']} {s['instance_type']}",
)  # fmt: skip
def test_what_the_rule_says_to_write_is_accepted(system: dict[str, Any]) -> None:
    """Each way of each fix. An environment that passes has room for every pod, by a sum that does not ask in which order they come."""
    for document in itertools.islice(environments(**system), 0, None, 37):
        env = parsed(document)
        problems = found(env)
        for problem in problems:
            assert problem.level == "error"
            ways = re.split(r" or (?=write )|, (?=write )", problem.fix)
            assert ways[0].startswith("write "), problem.fix
            for way in ways:
                assert found(parsed(followed(document, way))) == [], (document, problem.fix)
        kind = machine(system["instance_type"])
        assert kind
        if not problems:
            asked = [pod.room for pod in FACTS.installed(env.eks_parts, "system") for _ in range(pod.count)]
            asked += [pod.room for pod in FACTS.installed(env.eks_parts, "every")] * env.eks.system.nodes
            asked += [max((w.room for w in started(None)), key=lambda room: room.memory)]
            has = FACTS.allocatable(kind)
            assert sum(r.cpu for r in asked) <= has.cpu * env.eks.system.nodes
            assert sum(r.memory for r in asked) <= has.memory * env.eks.system.nodes
            assert len(asked) <= has.pods * env.eks.system.nodes


def test_unknown_types_are_not_judged() -> None:
    assert found(parsed({"eks": {"system": {"instance_type": "m99.large"}}})) == []


@pytest.mark.parametrize("name", CATALOG.instances)
@pytest.mark.parametrize("on", list(itertools.product((False, True), repeat=3)))
def test_a_training_pod_fits_beside_the_pods_of_its_node(name: str, on: tuple[bool, bool, bool]) -> None:
    """With all that can be installed; the detector and EKS's agent do not replace nodes both."""
    metrics, recovery, claims = on
    kind, wanted = CATALOG.instance(name), devices(fleet(name).model_copy(update={"claims": claims}))
    installed = {*CATALOG.eks.addons, *CATALOG.eks.charts, "node_problem_detector"}
    installed -= set() if metrics else {"amazon-cloudwatch-observability"}
    installed -= {"eks-node-monitoring-agent"} if recovery else set()
    installed |= {"metrics", *(["node_recovery"] if recovery else [])}
    where = ["every", "training", *(["efa"] if kind.efa_interfaces else [])]
    where += ["claims"] if claims else []
    left = FACTS.allocatable(
        Machine(kind.vcpus, kind.memory_gib * 1024, kind.max_pods or 58),
        hugepages=5128 * 2 if kind.efa_interfaces else 0,
    )
    for pod in FACTS.installed(installed, *where):
        left = left.less(pod.room)
    assert left.holds(Room(int(wanted["cpu"]) * 1000, int(wanted["memory"].removesuffix("Gi")) * 1024))
