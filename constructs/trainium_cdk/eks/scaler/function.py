"""The scaler's function: reads the cluster and its node groups, decides, and applies the changes. It keeps no state between runs.

Environment: SETTINGS (`Settings` as JSON).

A node is removed in two runs: the first cordons it, and the next terminates its instance, unless a pod was
placed on it in the meantime.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest

from . import look
from .decide import Change, Group, Limits, Plan, decide

_VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
_PAGE = 500


def handler(_event: object, _context: object) -> dict[str, Any]:
    """Entry point of AWS Lambda. What was done is returned, and printed for the log."""
    settings = Settings.read(os.environ["SETTINGS"])
    session = boto3.Session()
    cluster = session.client("eks").describe_cluster(name=settings.cluster)["cluster"]
    plan = Scaler(settings, Kubernetes(cluster, session), session.client).run(time.time())
    done = {
        "groups": {name: vars(change) for name, change in plan.groups.items()},
        "gangs": {key: attempt.why for key, attempt in plan.attempts.items()},
    }
    if any(done.values()):
        print(json.dumps(done))
    return done


@dataclass(frozen=True)
class Settings:
    """Settings of the function, from the stack.

    Attributes:
        cluster: its name.
        device: Kubernetes name of the devices.
        label: Kubernetes label that names a node's group.
    """

    cluster: str
    device: str
    label: str
    limits: Limits
    groups: tuple[look.GroupSettings, ...]

    @classmethod
    def read(cls, text: str) -> Settings:
        """From JSON."""
        data = json.loads(text)
        groups = tuple(
            look.GroupSettings(name, nodegroup, kind["type"], kind["devices"])
            for kind in data["types"]
            for name, nodegroup in kind["groups"].items()
        )
        return cls(data["cluster"], data["device"], data["label"], Limits(**data["limits"]), groups)


class Kubernetes:
    """The API of a cluster, as the session's identity (an EKS access entry).

    Args:
        cluster: as returned by DescribeCluster.
    """

    def __init__(self, cluster: dict[str, Any], session: Any) -> None:
        self._endpoint = cluster["endpoint"]
        authority = base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
        https = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority))
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        self._token = _token(cluster["name"], session)

    def list(self, path: str) -> list[dict[str, Any]]:
        """All objects of a kind."""
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            page = self._call("GET", f"{path}?limit={_PAGE}{more}")
            found += page["items"]
            if not (token := page["metadata"].get("continue")):
                return found
            more = f"&continue={token}"

    def patch(self, path: str, body: dict[str, Any]) -> None:
        """Change an object (merge patch)."""
        self._call("PATCH", path, body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        headers |= {"Content-Type": "application/merge-patch+json"} if body else {}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self._endpoint + path, data, headers, method=method)  # noqa: S310  https, EKS's
        with self._opener.open(request, timeout=30) as reply:
            return json.load(reply)


class Scaler:
    """One run over a cluster's node groups.

    Args:
        client: service name -> boto3 client.
    """

    def __init__(self, settings: Settings, kubernetes: Any, client: Any) -> None:
        self._settings, self._kubernetes = settings, kubernetes
        self._eks, self._scaling, self._ec2 = client("eks"), client("autoscaling"), client("ec2")

    def run(self, now: float) -> Plan:
        """Read, decide and apply. Returns the decision."""
        settings, kubernetes = self._settings, self._kubernetes
        described = {g.name: self._describe(g.nodegroup) for g in settings.groups}
        scaling = {name: self._auto_scaling_group(found) for name, found in described.items()}
        launched = self._launched([i["InstanceId"] for found in scaling.values() for i in found["Instances"]])
        nodes, pods = kubernetes.list("/api/v1/nodes"), kubernetes.list("/api/v1/pods")
        podgroups = kubernetes.list(f"{_VOLCANO}/podgroups")
        queues = {q["metadata"]["name"]: q for q in kubernetes.list(f"{_VOLCANO}/queues")}
        groups: list[Group] = []
        for each in settings.groups:
            found = scaling[each.name]
            mine = look.nodes(found["Instances"], launched, nodes, pods, now, settings.device)
            for node, since in look.idle_marks(mine, nodes, now).items():
                self._patch_node(node, {look.IDLE_SINCE: since})
            for node in look.taken_back(mine):
                self._patch_node(node, {look.LEAVING: None}, cordoned=False)
            groups.append(look.group(each, described[each.name], found, queues.get(each.name), mine))
        labels = {g.name: look.labels(g, described[g.name]) for g in settings.groups}
        gangs = look.gangs(podgroups, pods, labels, settings.device, settings.label)
        plan = decide(groups, gangs, now, settings.limits)
        for key, attempt in plan.attempts.items():
            namespace, name = key.split("/")
            path = f"{_VOLCANO}/namespaces/{namespace}/podgroups/{name}"
            self._patch(path, {"metadata": {"annotations": {look.ATTEMPT: look.annotation(attempt)}}})
        for each, group in zip(settings.groups, groups, strict=True):
            if change := plan.groups.get(each.name):
                self._change(each.name, scaling[each.name]["AutoScalingGroupName"], group, change)
        return plan

    def _change(self, queue: str, auto_scaling_group: str, group: Group, change: Change) -> None:
        if change.desired is not None:
            self._scaling.set_desired_capacity(
                AutoScalingGroupName=auto_scaling_group, DesiredCapacity=change.desired, HonorCooldown=False
            )
        left = len(change.remove)
        for node in (n for n in group.nodes if n.instance in change.remove):
            if node.name and not node.leaving:
                self._patch_node(node.name, {look.LEAVING: "true"}, cordoned=True)
                continue
            self._scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=node.instance, ShouldDecrementDesiredCapacity=True
            )
            left -= 1
        requested = None if change.requested is None else str(change.requested + left)
        annotations = {look.REQUESTED: requested}
        self._patch(f"{_VOLCANO}/queues/{queue}", {"metadata": {"annotations": annotations}})

    def _describe(self, nodegroup: str) -> dict[str, Any]:
        found: dict[str, Any] = self._eks.describe_nodegroup(
            clusterName=self._settings.cluster, nodegroupName=nodegroup
        )["nodegroup"]
        return found

    def _auto_scaling_group(self, described: dict[str, Any]) -> dict[str, Any]:
        name = described["resources"]["autoScalingGroups"][0]["name"]
        [found] = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        return dict(found)

    def _launched(self, instances: list[str]) -> dict[str, float]:
        """The launch time of each instance, except those that EC2 does not know yet."""
        if not instances:
            return {}
        filters = [{"Name": "instance-id", "Values": instances[at : at + 200]} for at in range(0, len(instances), 200)]
        pages = [p for f in filters for p in self._ec2.get_paginator("describe_instances").paginate(Filters=[f])]
        found = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        return {i["InstanceId"]: i["LaunchTime"].timestamp() for i in found}

    def _patch_node(self, name: str, annotations: dict[str, str | None], *, cordoned: bool | None = None) -> None:
        spec = {} if cordoned is None else {"spec": {"unschedulable": cordoned or None}}
        self._patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotations}, **spec})

    def _patch(self, path: str, body: dict[str, Any]) -> None:
        """Change an object, unless it was deleted."""
        try:
            self._kubernetes.patch(path, body)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise


def _token(cluster: str, session: Any) -> str:
    """A bearer token of EKS: a presigned GetCallerIdentity with the cluster's name in it."""
    region = session.region_name
    china = session.get_partition_for_region(region) == "aws-cn"
    request = AWSRequest(
        "GET",
        f"https://sts.{region}.amazonaws.com{'.cn' if china else ''}/",
        params={"Action": "GetCallerIdentity", "Version": "2011-06-15"},
        headers={"x-k8s-aws-id": cluster},
    )
    credentials = session.get_credentials().get_frozen_credentials()
    SigV4QueryAuth(credentials, "sts", region, expires=60).add_auth(request)
    return "k8s-aws-v1." + base64.urlsafe_b64encode(str(request.prepare().url).encode()).decode().rstrip("=")
