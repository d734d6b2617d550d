"""The Helm charts of the cluster and their values. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.eks.kueue import configuration
from trainium_cdk.description.catalog.charts import check_values
from trainium_cdk.description.catalog.eks import Chart
from trainium_cdk.description.outputs.eks import DEVICES_LABEL
from trainium_cdk.errors import RequirementError

DETECTOR_NAMESPACE = "neuron-healthcheck-system"
"""Namespace of the Neuron chart's node problem detector."""
DETECTOR_ACCOUNT = "node-problem-detector"
SCHEDULER = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
    enableJobEnqueued: false
  - name: nodeorder
  - name: binpack
"""
"""Configuration of Volcano's scheduler: the chart's default, but a job that the present nodes cannot hold still gets its pods.
 By default two plug-ins hold such a job back without pods: `overcommit` (left out), and `proportion`, which caps a queue at what the
present nodes have (so its admission check is turned off; its shares and the queue's capability still count when pods are placed). Without
pods, the number of nodes that a job needs is unknown, and with zero nodes no job would ever start.
"""
ADMISSIONS = ("/jobs/mutate", "/jobs/validate", "/podgroups/validate")
"""Volcano's admission webhooks that are on. The webhooks of queues are off: a queue that is applied before they are up is rejected (volcano issue 3254),
and the stack's queues need no defaults."""
CONTROLLERS = ("jobset", "kueue", "volcano")
"""Charts with controllers, each in its own namespace, on the system nodes. Deployments wait until they respond."""
CLAIMS = "neuron-claims"
"""The release of the Neuron chart with its DRA driver, for nodes whose devices pods claim."""
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True)
class Release:
    """A chart to install, as arguments of the CDK's handler.

    Attributes:
        name: of the Helm release. chart, repository: for a chart in a registry, the repository is the whole address (oci://...).
        create_namespace: whether Helm creates the namespace.
    """

    name: str
    chart: str
    repository: str
    version: str
    namespace: str
    values: dict[str, Any] = field(default_factory=dict)
    create_namespace: bool = False


def releases(wanted: Installation) -> tuple[Release, ...]:
    """The charts, in the order in which they are installed.

    Raises:
        RequirementError: a chart does not have a value that it would get. Helm would ignore it.
    """
    values = {"neuron": _neuron, CLAIMS: _claims, "efa": _efa, "jobset": _jobset, "kueue": _kueue, "volcano": _volcano}
    return tuple(_release(wanted, name, chart, values[name](wanted)) for name, chart in wanted.charts.items())


def _release(wanted: Installation, name: str, chart: Chart, values: dict[str, Any]) -> Release:
    for place, image in chart.images.items():
        if (mirrored := wanted.mirror.image(image)) != image:
            _put(values, place.split("."), mirrored)
    if wrong := check_values("neuron" if name == CLAIMS else name, chart.version, values):
        raise RequirementError(f"{name}: {wrong.name}: {wrong.reason}", wrong.fix)
    if chart.repository:
        where, what = chart.repository, chart.chart
    else:
        where, what = chart.chart, chart.chart.rpartition("/")[2]
    return Release(name, what, where, chart.version, chart.namespace, values, create_namespace=name in CONTROLLERS)


def _put(values: dict[str, Any], place: list[str], value: str) -> None:
    for key in place[:-1]:
        values = values.setdefault(key, {})
    values[place[-1]] = value


def _neuron(wanted: Installation) -> dict[str, Any]:
    """The instance types are listed, as the chart's own list lacks trn2.3xlarge and types newer than the chart."""
    plugins = wanted.plugins
    plain = not wanted.fleets or not all(fleet.claims for fleet in wanted.fleets)
    apart = {"affinity": _on(wanted, "NotIn")} if plain and wanted.claims else {}
    return {
        "neuronInstances": _types(wanted),
        "devicePlugin": {"enabled": plain, **apart},
        "scheduler": {"enabled": plugins.neuron_scheduler},
        "npd": {
            "enabled": plugins.node_problem_detector,
            "namespaceOverride": DETECTOR_NAMESPACE,  # created before the chart, which does not create it
            "serviceAccount": {"create": True, "name": DETECTOR_ACCOUNT},
            "nodeRecovery": {"enabled": plugins.node_recovery},
        },
        "draDriver": {"enabled": False},
    }


def _claims(wanted: Installation) -> dict[str, Any]:
    """The chart makes the driver's namespace, so that it is never one that exists."""
    off = {name: {"enabled": False} for name in ("devicePlugin", "scheduler", "npd")}
    return {**off, "draDriver": {"enabled": True, "affinity": _on(wanted, "In")}}


def _on(wanted: Installation, operator: str) -> dict[str, Any]:
    """The affinity to nodes whose label says (In) or does not say (NotIn) that pods claim their devices; the rest as the chart's own."""
    terms = {
        _INSTANCE_TYPE: ("In", _types(wanted)),
        "eks.amazonaws.com/compute-type": ("NotIn", ["fargate", "hybrid", "auto"]),
        DEVICES_LABEL: (operator, ["claims"]),
    }
    rules = [{"key": key, "operator": how, "values": values} for key, (how, values) in terms.items()]
    required = {"nodeSelectorTerms": [{"matchExpressions": rules}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _efa(wanted: Installation) -> dict[str, Any]:
    """The chart (0.5.30) tolerates only CriticalAddonsOnly, so it would not start on Trainium nodes."""
    return {
        "supportedInstanceLabels": {"keys": [_INSTANCE_TYPE], "values": _types(wanted, efa=True)},
        "tolerations": [{"key": wanted.catalog.eks.taint, "operator": "Exists", "effect": "NoSchedule"}],
    }


def _jobset(wanted: Installation) -> dict[str, Any]:
    """The chart names an image of the project's own builds; the released one is the catalogue's."""
    return {"image": {**_image(wanted, "jobset"), "pullPolicy": "IfNotPresent"}}


def _kueue(wanted: Installation) -> dict[str, Any]:
    """The image as in `_jobset`. Kueue reads its configuration from a text."""
    names = wanted.catalog.eks
    classes = {names.resources.device: names.claims.device_class} if wanted.claims else {}
    image = {**_image(wanted, "kueue"), "pullPolicy": "IfNotPresent"}
    text = json.dumps(configuration(classes), indent=1)  # JSON is YAML
    return {
        "controllerManager": {"manager": {"image": image}},
        "managerConfig": {"controllerManagerConfigYaml": text},
    }


def _image(wanted: Installation, name: str) -> dict[str, str]:
    chart = wanted.charts[name]
    [repository] = chart.images.values()
    return {"repository": repository, "tag": f"v{chart.version}"}


def _volcano(wanted: Installation) -> dict[str, Any]:
    chart = wanted.charts["volcano"]
    return {
        "basic": {"image_tag_version": f"v{chart.version}", "image_pull_policy": "IfNotPresent"},
        "custom": {"scheduler_config_override": SCHEDULER, "enabled_admissions": ",".join(ADMISSIONS)},
    }


def _types(wanted: Installation, *, efa: bool = False) -> list[str]:
    """The instance types of the node groups; only those with EFA if `efa`."""
    return list(dict.fromkeys(f.instance_type for f in wanted.fleets if f.efa or not efa))
