"""Kubernetes' records of failures in a cluster: conditions of nodes, warnings of the jobs' namespace, and why jobs wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainium_cdk.client.jobs.kubernetes import parts, reasons
from trainium_cdk.client.jobs.kubernetes.api import Api
from trainium_cdk.client.jobs.kubernetes.look import event_text
from trainium_cdk.client.operations.why import LINES, Evidence
from trainium_cdk.description.catalog.known_errors import explain

Object = dict[str, Any]


def in_cluster(api: Api, devices: Mapping[str, int] | None = None) -> list[Evidence]:
    """Nodes first. Kubernetes keeps warnings for an hour; each message is there once, with its newest time.

    Args:
        devices: of one node, by node group.

    Raises:
        TransportError: the cluster cannot be reached, or the caller may not read that.
    """
    warnings: dict[str, Evidence] = {}
    for each in sorted(map(_warning, api.list("Event", fields="type=Warning")), key=lambda e: e.time):
        warnings[each.text] = each
    newest = sorted(warnings.values(), key=lambda e: e.time)[-LINES:]
    return [
        *(e for node in api.list("Node") for e in _of_node(node)),
        *newest,
        *(waits(one, devices) for one in _waiting(api)),
    ][: 3 * LINES]


def _of_node(node: Object) -> Iterator[Evidence]:
    """Conditions that are not as they should be: Ready, and all others, which tell of troubles."""
    for one in node.get("status", {}).get("conditions", []):
        if one["status"] != ("True" if one["type"] == "Ready" else "False"):
            text = f"{one['type']} is {one['status']}: {one.get('reason', '')}: {one.get('message', '')}"
            yield _evidence(f"node {node['metadata']['name']}", text, one.get("lastTransitionTime") or "")


def _warning(event: Object) -> Evidence:
    about = event["involvedObject"]
    at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return _evidence(f"{about['kind']} {about['name']}", f"{event['reason']}: {event_text(event)}", at)


def _waiting(api: Api) -> list[Object]:
    """Workloads without nodes, where the reason is known: AWS has none, a capacity block is over, or another job has them."""
    found = api.list("Workload", without=["podSets"])
    return [w for w in found if not parts.condition(w, "Finished") and reasons.why_no_nodes(w)]


def waits(workload: Object, devices: Mapping[str, int] | None = None) -> Evidence:
    """Explain why a job waits for its nodes, in the words of the function that starts them."""
    owner = next((o["name"] for o in workload["metadata"].get("ownerReferences", [])), workload["metadata"]["name"])
    known = reasons.Waits(devices=devices)
    words = [*reasons.why_no_nodes(workload, known), reasons.taken(workload, known)]
    return _evidence(f"job {owner}", "; ".join(filter(None, words)), "")


def _evidence(where: str, text: str, time: str) -> Evidence:
    line = " ".join(text.split())[:1000]
    return Evidence(where, line, time, explain(line))
