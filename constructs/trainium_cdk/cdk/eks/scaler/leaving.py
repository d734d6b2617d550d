"""The function that removes Kubernetes objects which a deployment takes out: what has this stack's label, and is not in the list of
the objects that the stack has now.

It runs after each change of that list, and once an hour for what had to stay: then it looks only at objects that it marked. Nothing waits
for a job. These stay, each with its reason:

- a namespace with jobs or volumes of the users, with all that is in it but its queues;
- a queue whose jobs run: its quota is 0, so that other teams get their nodes back, and it takes no new job;
- a claim that a job uses, and its volume.

A volume is never deleted with its data: the volumes are static, and retained.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

LABEL = "trainium-cdk/owner"
"""Label of every object of a stack. An object that leaves, and has to stay for a while, has the owner's leaving value; applying it again sets
the owner's."""
_PATIENCE = 60.0
"""Seconds in which an object without a user must be gone: the next deployment may create it again."""
Object = dict[str, Any]


EACH = "*"
"""Stands for each namespace of jobs in the names of a list; the list has these namespaces under this key."""


class ObjectKind(NamedTuple):
    """Kind of Kubernetes objects: its path in the API."""

    root: str
    folder: str
    namespaced: bool = False

    @property
    def group(self) -> str:
        """The API group; empty for the first one."""
        return self.root.split("/")[2] if self.root.startswith("/apis/") else ""


_CORE, _KUEUE, _RBAC = "/api/v1", "/apis/kueue.x-k8s.io/v1beta2", "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "LocalQueue": ObjectKind(_KUEUE, "localqueues", True),
    "ClusterQueue": ObjectKind(_KUEUE, "clusterqueues"),
    "Queue": ObjectKind("/apis/scheduling.volcano.sh/v1beta1", "queues"),
    "AdmissionCheck": ObjectKind(_KUEUE, "admissionchecks"),
    "ProvisioningRequestConfig": ObjectKind(_KUEUE, "provisioningrequestconfigs"),
    "ResourceFlavor": ObjectKind(_KUEUE, "resourceflavors"),
    "WorkloadPriorityClass": ObjectKind(_KUEUE, "workloadpriorityclasses"),
    "PersistentVolumeClaim": ObjectKind(_CORE, "persistentvolumeclaims", True),
    "Namespace": ObjectKind(_CORE, "namespaces"),
    "PersistentVolume": ObjectKind(_CORE, "persistentvolumes"),
    "ValidatingAdmissionPolicyBinding": ObjectKind(_ADMISSION, "validatingadmissionpolicybindings"),
    "ValidatingAdmissionPolicy": ObjectKind(_ADMISSION, "validatingadmissionpolicies"),
    "ResourceQuota": ObjectKind(_CORE, "resourcequotas", True),
    "LimitRange": ObjectKind(_CORE, "limitranges", True),
    "NetworkPolicy": ObjectKind("/apis/networking.k8s.io/v1", "networkpolicies", True),
    "Lease": ObjectKind("/apis/coordination.k8s.io/v1", "leases", True),
    "ServiceAccount": ObjectKind(_CORE, "serviceaccounts", True),
    "RoleBinding": ObjectKind(_RBAC, "rolebindings", True),
    "Role": ObjectKind(_RBAC, "roles", True),
    "ClusterRoleBinding": ObjectKind(_RBAC, "clusterrolebindings"),
    "ClusterRole": ObjectKind(_RBAC, "clusterroles"),
    "StorageClass": ObjectKind("/apis/storage.k8s.io/v1", "storageclasses"),
}
"""The kinds of a stack's objects, in the order in which they are removed. Definitions of kinds are not among them: all objects of the kind
would go with them."""
_FREED = {"AdmissionCheck", "ProvisioningRequestConfig", "ResourceFlavor", "PersistentVolume"}
"""Kinds whose objects others refer to, which must be gone first."""
_MAY_STAY = {"ClusterQueue", "Queue", "PersistentVolumeClaim", "Namespace", *_FREED}
"""Kinds whose objects are marked, for later runs. What is in a namespace that stays goes with it."""
WORK = {
    "Pod": ObjectKind(_CORE, "pods", True),
    "Job": ObjectKind("/apis/batch/v1", "jobs", True),
    "CronJob": ObjectKind("/apis/batch/v1", "cronjobs", True),
    "JobSet": ObjectKind("/apis/jobset.x-k8s.io/v1alpha2", "jobsets", True),
    "Workload": ObjectKind(_KUEUE, "workloads", True),
    "Deployment": ObjectKind("/apis/apps/v1", "deployments", True),
    "StatefulSet": ObjectKind("/apis/apps/v1", "statefulsets", True),
    "volcano job": ObjectKind("/apis/batch.volcano.sh/v1alpha1", "jobs", True),
    "PersistentVolumeClaim": ObjectKind(_CORE, "persistentvolumeclaims", True),
}
"""Objects that keep a namespace: jobs, ended ones too, as their records and logs would go; and the users' own claims."""


class Leaving:
    """One run.

    Args:
        owner: value of the label of the stack's objects.
    """

    def __init__(self, api: Any, owner: str, *, patience: float = _PATIENCE) -> None:
        self._api, self._owner, self._leaves, self._patience = api, owner, f"{owner}-leaving", patience
        self._removed, self._stays = list[str](), list[str]()

    def deployed(self, wanted: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
        """Remove what is not wanted; mark it first if it may have to stay.

        Args:
            wanted: the stack's objects, as `owned.names_by_kind` returns them.
        """
        found: dict[str, list[Object]] = {}
        for kind, at in KINDS.items():
            found[kind], names = [], set(expanded(wanted.get(kind, ()), wanted.get(EACH, ())))
            for one in list(self._list(at, f"{LABEL}%20in%20({self._owner},{self._leaves})")):
                leaves = name_of(one) not in names
                value = self._leaves if leaves else self._owner
                if kind in _MAY_STAY and one["metadata"]["labels"][LABEL] != value:
                    self._api.patch(_path(at, one), {"metadata": {"labels": {LABEL: value}}})
                if leaves:
                    found[kind].append(one)
        return self._remove(found)

    def finish(self) -> dict[str, list[str]]:
        """Remove what is marked. Returns `removed`, and `stays` with the reasons."""
        marked = f"{LABEL}%3D{self._leaves}"
        return self._remove({k: list(self._list(at, marked)) if k in _MAY_STAY else [] for k, at in KINDS.items()})

    def _remove(self, leaving: Mapping[str, list[Object]]) -> dict[str, list[str]]:
        busy = {name: why for one in leaving["Namespace"] if (why := self._work(name := name_of(one)))}
        for name, why in busy.items():
            self._stays.append(f"Namespace {name}: it has {why}; kubectl delete namespace {name} removes it with them")
        going = {name_of(one) for one in leaving["Namespace"]} - busy.keys()
        pending: list[tuple[str, Object]] = []
        for kind, objects in leaving.items():
            if objects and kind in _FREED:
                self._await(pending)
            for one in objects:
                where = one["metadata"].get("namespace", "")
                of = where or one.get("spec", {}).get("claimRef", {}).get("namespace", "")
                if where in going or (of in busy and kind != "LocalQueue"):
                    continue  # goes, or stays, with its namespace
                if name_of(one) in busy and kind == "Namespace":
                    continue
                if why := self._user(kind, one):
                    self._stays.append(f"{kind} {name_of(one)}: {why}")
                elif self._delete(kind, one):
                    pending.append((kind, one))
        self._await(pending)
        return {"removed": self._removed, "stays": self._stays}

    def _user(self, kind: str, resource: Object) -> str:
        """Return who still uses an object; empty if no one does."""
        name = name_of(resource)
        if kind == "ClusterQueue" and (jobs := self._running(name)):
            self._api.patch(_path(KINDS[kind], resource), {"spec": {"resourceGroups": without_quota(resource["spec"])}})
            return f"{jobs} run; it has no quota and takes no new job"
        if kind == "PersistentVolumeClaim" and (jobs := self._mounting(*name.split("/"))):
            return f"{jobs} use it"
        if kind == "PersistentVolume":
            claim = resource["spec"].get("claimRef", {})
            path = f"{_CORE}/namespaces/{claim.get('namespace')}/persistentvolumeclaims/{claim.get('name')}"
            bound = self._get(path) if claim else None
            if bound and not bound["metadata"].get("deletionTimestamp"):
                return f"claim {claim['namespace']}/{claim['name']} is bound to it"
        if kind == "ProvisioningRequestConfig":
            checks = self._list(KINDS["AdmissionCheck"])
            users = [name_of(c) for c in checks if c["spec"].get("parameters", {}).get("name") == name]
            return f"AdmissionCheck {', '.join(users)} refers to it" if users else ""
        if kind in ("AdmissionCheck", "ResourceFlavor"):
            users = [name_of(q) for q in self._list(KINDS["ClusterQueue"]) if name in _refers(q["spec"])]
            return f"ClusterQueue {', '.join(users)} refers to it" if users else ""
        return ""

    def _work(self, namespace: str) -> str:
        """List the objects of users in a namespace as text; empty if there are none."""
        found = []
        for kind, at in WORK.items():
            objects = self._list(ObjectKind(f"{at.root}/namespaces/{namespace}", at.folder))
            mine = [
                one["metadata"]["name"]
                for one in objects
                if not (kind == "PersistentVolumeClaim" and LABEL in one["metadata"].get("labels", {}))
                and not any(
                    owner["kind"] in ("DaemonSet", *WORK) for owner in one["metadata"].get("ownerReferences", [])
                )
            ]
            found += [f"{kind} {name}" for name in mine]
        return _few(found)

    def _running(self, queue: str) -> str:
        """Jobs that have quota of a queue."""
        return _few(
            [_job(w) for w in self._workloads() if w["status"].get("admission", {}).get("clusterQueue") == queue]
        )

    def _mounting(self, namespace: str, claim: str) -> str:
        """Jobs that use a claim, or will when they start."""
        specs = [(_job(w), s["template"]["spec"]) for w in self._workloads() for s in w["spec"].get("podSets", ())]
        pods = self._list(ObjectKind(f"{_CORE}/namespaces/{namespace}", "pods"))
        alive = [p for p in pods if p.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
        specs += [(f"{namespace}/{p['metadata']['name']}", p["spec"]) for p in alive]
        return _few(
            list(
                dict.fromkeys(job for job, spec in specs if job.startswith(f"{namespace}/") and claim in _claims(spec))
            )
        )

    def _workloads(self) -> Iterator[Object]:
        """List Kueue's Workloads that have not ended."""
        for one in self._list(ObjectKind(_KUEUE, "workloads")):
            ended = {c["type"] for c in one.setdefault("status", {}).get("conditions", []) if c["status"] == "True"}
            if "Finished" not in ended:
                yield one

    def _delete(self, kind: str, resource: Object) -> bool:
        try:
            self._api.delete(_path(KINDS[kind], resource), resource["metadata"]["uid"])
        except OSError as error:
            self._stays.append(f"{kind} {name_of(resource)}: {error}")
            return False
        self._removed.append(f"{kind} {name_of(resource)}")
        return True

    def _await(self, pending: list[tuple[str, Object]]) -> None:
        """Wait until deleted objects are gone, for a while: their finalizers may take seconds."""
        until = time.monotonic() + self._patience
        while pending:
            kind, one = pending[-1]
            here = self._get(_path(KINDS[kind], one))
            if here is None or here["metadata"]["uid"] != one["metadata"]["uid"]:
                pending.pop()
            elif time.monotonic() > until:
                self._stays += [f"{kind} {name_of(one)}: its deletion has not ended" for kind, one in pending]
                pending.clear()
            else:
                time.sleep(0.5)

    def _list(self, at: ObjectKind, select: str = "") -> Iterator[Object]:
        """Objects of a kind; none if the cluster does not have the kind."""
        try:
            yield from self._api.list(f"{at.root}/{at.folder}", f"labelSelector={select}" if select else "")
        except OSError as error:
            if getattr(error, "code", None) != 404:
                raise

    def _get(self, path: str) -> Object | None:
        return self._api.get(path)  # type: ignore[no-any-return]


def name_of(resource: Object) -> str:
    """NAMESPACE/NAME, or NAME for what is in no namespace."""
    return "/".join(filter(None, (resource["metadata"].get("namespace"), resource["metadata"]["name"])))


def without_quota(spec: Object) -> list[Object]:
    """The resource groups of a ClusterQueue without quota: what runs in it is borrowed, and is reclaimed first."""
    groups: list[Object] = json.loads(json.dumps(spec["resourceGroups"]))
    for group in groups:
        for flavor in group["flavors"]:
            flavor["resources"] = [{"name": each["name"], "nominalQuota": "0"} for each in flavor["resources"]]
    return groups


def _path(at: ObjectKind, resource: Object) -> str:
    where = f"/namespaces/{resource['metadata']['namespace']}" if at.namespaced else ""
    return f"{at.root}{where}/{at.folder}/{resource['metadata']['name']}"


def _refers(spec: Object) -> set[str]:
    """The flavors and checks of a ClusterQueue."""
    flavors = {flavor["name"] for group in spec.get("resourceGroups", ()) for flavor in group["flavors"]}
    return flavors | {check["name"] for check in spec.get("admissionChecksStrategy", {}).get("admissionChecks", ())}


def _claims(spec: Object) -> set[str]:
    return {volume.get("persistentVolumeClaim", {}).get("claimName", "") for volume in spec.get("volumes", ())}


def _job(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences", [])
    return f"{workload['metadata']['namespace']}/{(owners[0] if owners else workload['metadata'])['name']}"


def _few(names: list[str], most: int = 5) -> str:
    """
    >>> _few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def expanded(names: Collection[str], namespaces: Collection[str]) -> Iterator[str]:
    """Names of a list, with each namespace in the place of a star.

    >>> list(expanded(["a/x", "*/y"], ["a", "b"]))
    ['a/x', 'a/y', 'b/y']
    """
    for name in names:
        yield from (f"{namespace}{name[1:]}" for namespace in namespaces) if name.startswith("*") else (name,)
