"""A small client of the Kubernetes API for the sandbox itself: certificates, JSON, watches.

Users' commands use tokens made with boto3 and `trn`, or kubectl; this one sets up the cluster.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import urllib3
import yaml

Object = dict[str, Any]

_FOLDERS = {
    "AdmissionCheck": "admissionchecks",
    "CSINode": "csinodes",
    "ClusterQueue": "clusterqueues",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Cohort": "cohorts",
    "ConfigMap": "configmaps",
    "CustomResourceDefinition": "customresourcedefinitions",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
    "DeviceClass": "deviceclasses",
    "Event": "events",
    "Exec": "execs",
    "Job": "jobs",
    "JobSet": "jobsets",
    "Lease": "leases",
    "LocalQueue": "localqueues",
    "Logs": "logs",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "Namespace": "namespaces",
    "NetworkPolicy": "networkpolicies",
    "Node": "nodes",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Pod": "pods",
    "PodGroup": "podgroups",
    "PodTemplate": "podtemplates",
    "PortForward": "portforwards",
    "PriorityClass": "priorityclasses",
    "ProvisioningRequest": "provisioningrequests",
    "ProvisioningRequestConfig": "provisioningrequestconfigs",
    "Queue": "queues",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceFlavor": "resourceflavors",
    "ResourceQuota": "resourcequotas",
    "ResourceSlice": "resourceslices",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "ServiceAccount": "serviceaccounts",
    "StorageClass": "storageclasses",
    "Topology": "topologies",
    "TrainJob": "trainjobs",
    "TrainingRuntime": "trainingruntimes",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
    "Workload": "workloads",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
_CLUSTER_WIDE = {
    "AdmissionCheck",
    "CSINode",
    "ClusterQueue",
    "ClusterRole",
    "ClusterRoleBinding",
    "Cohort",
    "CustomResourceDefinition",
    "DeviceClass",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "ProvisioningRequestConfig",
    "Queue",
    "ResourceFlavor",
    "ResourceSlice",
    "StorageClass",
    "Topology",
    "ValidatingWebhookConfiguration",
    "WorkloadPriorityClass",
}


class ApiError(RuntimeError):
    """The API returned an error. `status` is the HTTP status, `reason` Kubernetes' short reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


def retry(request: Callable[[], Any]) -> Any:
    """The result of `request`, which is repeated for up to 300 s while the API server does not respond or reports that it is too busy.

    Raises:
        ApiError, OSError: the last error.
    """
    end = time.monotonic() + 300
    while True:
        try:
            return request()
        except (ApiError, OSError) as error:
            refused = isinstance(error, ApiError) and error.status < 500 and error.status != 429
            if refused or time.monotonic() > end:
                raise
        time.sleep(0.5)


def path_of(api_version: str, kind: str, name: str = "", namespace: str | None = None) -> str:
    """The URL path of an object, or of all objects of its kind.

    >>> path_of("batch.volcano.sh/v1alpha1", "Job", "train", "default")
    '/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/train'
    """
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    middle = f"/namespaces/{namespace}" if namespace and kind not in _CLUSTER_WIDE else ""
    return f"{root}{middle}/{_FOLDERS[kind]}" + (f"/{name}" if name else "")


class Api:
    """A client of one cluster's API server, as one user.

    Args:
        endpoint: https://127.0.0.1:port
        ca: file with the certificate of its authority.
        certificate: (certificate, key) files of the user. None: `token`, or anonymous.
        token: bearer token.
    """

    def __init__(
        self, endpoint: str, ca: Path, *, certificate: tuple[Path, Path] | None = None, token: str | None = None
    ) -> None:
        self.endpoint = endpoint
        self._token = token
        context = ssl.create_default_context(cafile=ca)
        if certificate:
            context.load_cert_chain(*certificate)
        # connections are kept: a handshake takes both sides more processor time than most requests
        self._pool = urllib3.PoolManager(ssl_context=context, maxsize=16, retries=False)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> Any:
        """Send a request; returns the parsed JSON, or text. Raises ApiError, OSError."""
        reply = self._send(method, path, body, kind=kind, query=query, timeout=timeout)
        if reply.headers.get("Content-Type", "").partition(";")[0] == "application/json":
            return json.loads(reply.data)
        return reply.data.decode(errors="replace")

    def get(self, path: str, **query: str) -> Any:
        return self.call("GET", path, query=query)

    def create(self, body: Object) -> Object:
        """Create an object in its own namespace."""
        made: Object = self.call("POST", _folder(body), body)
        return made

    def apply(self, body: Object) -> Object:
        """Create or update the object (server-side apply)."""
        path = f"{_folder(body)}/{body['metadata']['name']}"
        made: Object = self.call(
            "PATCH",
            path,
            body,
            kind="application/apply-patch+yaml",
            query={"fieldManager": "sandbox", "force": "true"},
        )
        return made

    def patch_status(self, path: str, uid: str, status: Object, version: str = "") -> None:
        """Change the status of the object with this uid; another object with the same name is kept (ApiError 409).

        Args:
            version: that it must still have; else ApiError 409.
        """
        metadata = {"uid": uid, **({"resourceVersion": version} if version else {})}
        body = {"metadata": metadata, "status": status}
        self.call("PATCH", f"{path}/status", body, kind="application/merge-patch+json")

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def delete(self, path: str, **options: Any) -> None:
        """Delete; an object that does not exist is not an error."""
        try:
            self.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, *, timeout: float = 3600.0) -> Iterator[tuple[str, Object]]:
        """(event, object) for all existing and new objects, until the connection ends."""
        query = {"watch": "true", "timeoutSeconds": str(int(timeout))}
        reply = self._send("GET", path, None, query=query, timeout=timeout + 30, stream=True)
        try:
            for line in reply:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from error
        finally:
            reply.close()

    def _send(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: float,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        url = self.endpoint + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "Content-Type": kind}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        try:
            reply = self._pool.request(method, url, data, headers=headers, timeout=timeout, preload_content=not stream)
            if reply.status < 400:
                return reply
            raw = reply.data
        except urllib3.exceptions.HTTPError as error:
            raise OSError(str(error)) from error
        try:
            status = json.loads(raw)
            raise ApiError(reply.status, status.get("reason", ""), status.get("message", ""))
        except ValueError:
            raise ApiError(reply.status, reply.reason or "", raw.decode(errors="replace")) from None


def _folder(body: Object) -> str:
    return path_of(body["apiVersion"], body["kind"], namespace=body["metadata"].get("namespace", "default"))


def load_all(files: Sequence[Path]) -> list[Object]:
    """The objects of YAML files."""
    return [document for file in files for document in read_all(file.read_text("utf-8"))]


def read_all(text: str) -> list[Object]:
    """The objects of a YAML text. With libyaml, as the definitions of charts have megabytes."""
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]
