"""The Kubernetes API of one cluster, with errors as `TransportError`.
 Requests go through urllib3, as the official client's do; importing that client takes 1.6 s of processor time (kubernetes 37.0.1,
measured 2026-11-22), so only exec and port-forward use it.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from trainium_cdk.client.jobs.backend import ONE_QUESTION, Patience
from trainium_cdk.client.jobs.kubernetes.access import Endpoint, Identity, Token
from trainium_cdk.errors import ApiError, TransportError

Object = dict[str, Any]

_PATHS = {
    "BatchJob": "/apis/batch/v1/namespaces/{ns}/jobs",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "ConfigMap": "/api/v1/namespaces/{ns}/configmaps",
    "Event": "/api/v1/namespaces/{ns}/events",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{ns}/jobsets",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
    "LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{ns}/localqueues",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{ns}/pods",
    "PriorityClass": "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
    "VolcanoJob": "/apis/batch.volcano.sh/v1alpha1/namespaces/{ns}/jobs",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaimtemplates",
    "Secret": "/api/v1/namespaces/{ns}/secrets",
    "Workload": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{ns}/workloads",
}
_PIECE = 1 << 20
_BEGIN = b',"managedFields":['
_MANAGED = re.compile(re.escape(_BEGIN) + rb'[^"\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]]*+)*+\]')
"""Who has set which field, in the JSON of a response: most of an object's metadata, and of no use here. To leave it out before the rest is read
saves two thirds of the time. It has no list in it, and no text can look like it: quotes in a text are escaped."""
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_TIMEOUT = (10.0, 60.0)
MOST = 1 << 28
"""Bytes of an answer, unpacked: whoever may create objects decides how large they are."""


class _Whole(NamedTuple):
    """A response that was read."""

    status: int
    reason: str
    data: bytes


class Api:
    """One cluster's API.

    Args:
        identity: gives the tokens.
        namespace: of all requests.
    """

    def __init__(self, endpoint: Endpoint, identity: Identity, namespace: str) -> None:
        self.namespace, self._endpoint, self._identity = namespace, endpoint, identity
        self._token: Token | None = None
        self._connections = connections(endpoint)
        self._official: Any = None
        self._bearer()
        # exec and port-forward need a file: one without a name, which is deleted however this process ends
        self._authority = tempfile.TemporaryFile()  # noqa: SIM115  closed with the rest
        self._authority.write(endpoint.authority.encode())
        atexit.register(self.close)

    def close(self) -> None:
        """Close its connections."""
        self._authority.close()
        with contextlib.suppress(Exception):
            self._connections.clear()
            if self._official:
                self._official.close()
        atexit.unregister(self.close)

    def get(self, kind: str, name: str) -> Object:
        """Raises ApiError, with status 404 if it does not exist."""
        return self._call("GET", f"{self._path(kind)}/{name}")

    def find(self, kind: str, name: str) -> Object | None:
        """Get an object; None if it does not exist."""
        with absent_is_fine():
            return self.get(kind, name)
        return None

    def table(self, kind: str, *, labels: str = "", fields: str = "") -> list[Object]:
        """The objects' metadata with the columns that `kubectl get` shows, as `columns`: a tenth of the objects, in one request."""
        query = {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields)) if v}
        found = self._call("GET", self._path(kind), query=query, accept=_TABLE)
        names = [column["name"] for column in found.get("columnDefinitions") or []]
        rows = found.get("rows") or []
        return [{**row["object"], "columns": dict(zip(names, row["cells"], strict=True))} for row in rows]

    def list(
        self, kind: str, *, labels: str = "", fields: str = "", page: int = 500, without: Sequence[str] = ()
    ) -> list[Object]:
        """All objects, `page` of them with each request; 0: all with one.

        Args:
            without: keys that are left out, for less memory.
        """
        query = {k: v for k, v in (("labelSelector", labels), ("fieldSelector", fields), ("limit", str(page))) if v}
        found, left = list[Object](), MOST
        while True:
            part, size = self._sized("GET", self._path(kind), query=query, without=without)
            if (left := left - size) < 0:
                raise _too_much()
            found += part.get("items") or []
            if not (rest := part.get("metadata", {}).get("continue")):
                return found
            query["continue"] = rest

    def create(self, kind: str, body: Object) -> Object:
        """Raises ApiError, with status 409 if it already exists."""
        return self._call("POST", self._path(kind), body)

    def patch(self, kind: str, name: str, body: Object, *, part: str = "") -> Object:
        """A merge patch of an object, or of its `part` /status."""
        return self._call("PATCH", f"{self._path(kind)}/{name}{part}", body, content="application/merge-patch+json")

    def delete(self, kind: str, name: str, *, uid: str = "") -> None:
        """Delete an object. No error if it does not exist."""
        options: Object = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        with absent_is_fine():
            self._call("DELETE", f"{self._path(kind)}/{name}", options)

    def log(
        self,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        seconds: float | None = None,
        lines: int | None = None,
        stamps: bool = False,
    ) -> Iterator[bytes]:
        """A container's log in pieces, or so many last `lines` of it, with `stamps` each after its time; with `follow` until it ends, or nothing
        arrives for `seconds`."""
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        query = {
            "container": container,
            **({"follow": "true"} if follow else {}),
            **({"tailLines": str(lines)} if lines else {}),
            **({"timestamps": "true"} if stamps else {}),
        }
        reply = self._send(
            "GET", f"{self._path('Pod')}/{pod}/log", query=query, raw=True, timeout=(10.0, seconds or _TIMEOUT[1])
        )
        try:
            while piece := reply.read1(65_536):
                yield piece
        except ReadTimeoutError:
            return
        except HTTPError as e:
            raise TransportError(f"the log of {pod} was cut off: {e}") from None
        finally:
            reply.close()  # before it returns to the pool: with half a response in it, it cannot be used again
            reply.release_conn()

    @property
    def client(self) -> Any:
        """The official client, for exec and port-forward."""
        if not self._official:
            from kubernetes.client.api_client import ApiClient
            from kubernetes.client.configuration import Configuration

            config = Configuration()
            config.host = self._endpoint.url
            config.tls_server_name = self._endpoint.server_name or None
            config.refresh_api_key_hook = self._renew
            self._renew(config)
            config.ssl_ca_cert = f"/dev/fd/{self._authority.fileno()}"
            self._official = ApiClient(config)
        self._authority.seek(0)
        return self._official

    def _path(self, kind: str) -> str:
        return _PATHS[kind].format(ns=self.namespace)

    def _bearer(self) -> str:
        now = dt.datetime.now(dt.UTC)
        if self._token is None or now > self._token.until - dt.timedelta(minutes=2):
            self._token = self._identity.token(now)
        return self._token.value

    def _renew(self, config: Any) -> None:
        config.api_key["authorization"] = f"Bearer {self._bearer()}"

    def _call(self, method: str, path: str, body: Any = None, *, without: Sequence[str] = (), **how: Any) -> Object:
        """The JSON of a response; `how` as for `_send`."""
        return self._sized(method, path, body, without=without, **how)[0]

    def _sized(
        self, method: str, path: str, body: Any = None, *, without: Sequence[str] = (), **how: Any
    ) -> tuple[Object, int]:
        """The JSON of a response, and how many bytes it has."""
        # only the caller may repeat requests that change something
        patience = Patience(ONE_QUESTION if method == "GET" else 0.0)
        text = patience.ask(lambda: self._send(method, path, body, **how).data)
        for key in without:
            text = _without(text.decode(), key)
        try:
            made = json.loads(text)
        except (ValueError, RecursionError):
            made = None
        if not isinstance(made, dict):
            raise TransportError(
                f"what answers at {self._endpoint.url} is no Kubernetes API. Is there a proxy between (HTTPS_PROXY, NO_PROXY)?",
                again=False,
            )
        return made, len(text)

    def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content: str = "application/json",
        accept: str = "application/json, */*",
        raw: bool = False,
        timeout: tuple[float, float] = _TIMEOUT,
    ) -> Any:
        """A response: urllib3's, unread, if `raw`."""
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        headers = {"Accept": accept, "Content-Type": content, "User-Agent": "trn"}
        if not raw:  # lists repeat themselves
            headers["Accept-Encoding"] = "gzip"
        url = self._endpoint.url + path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body)
        limits = Timeout(connect=timeout[0], read=timeout[1])

        def once() -> Any:
            bearer = {"Authorization": f"Bearer {self._bearer()}"}
            reply = self._connections.request(
                method, url, body=data, headers=headers | bearer, timeout=limits, preload_content=False
            )
            # read here, where a lost connection is caught
            return reply if raw and reply.status < 300 else _Whole(reply.status, reply.reason, _read(reply))

        try:
            reply = once()
            if reply.status == 401:  # the credentials may have been renewed since
                self._token = None
                reply = once()
        except HTTPError as e:
            raise TransportError(
                f"the Kubernetes API at {self._endpoint.url} cannot be reached: {_why(e)}. A private endpoint is reached only from inside "
                "its VPC, or through the bastion host"
            ) from None
        if reply.status >= 300:
            raise self._refusal(reply)
        return reply

    def _refusal(self, reply: Any) -> ApiError:
        try:
            body = json.loads(reply.data)
        except ValueError:
            body = {}
        message, reason = body.get("message") or reply.reason or "no message", body.get("reason") or ""
        if reply.status == 401:
            message = self._identity.why_unknown()
        elif reply.status == 403:
            message = (
                f"these AWS credentials are not allowed to do that: {message}. Request the policy edit (eks.access)"
            )
        return ApiError(reply.status, str(reason), str(message))


def connections(endpoint: Endpoint) -> Any:
    """Kept connections that trust the cluster's own authority alone; through the proxy that a variable names, if one does."""
    from urllib3 import PoolManager, ProxyManager

    how: dict[str, Any] = {
        "maxsize": 10,
        "retries": 2,
        "ca_cert_data": endpoint.authority,
        "server_hostname": endpoint.server_name or None,
    }
    address, proxies = urlsplit(endpoint.url), getproxies()
    proxy = proxies.get(address.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(address.netloc):
        return ProxyManager(proxy if "://" in proxy else f"http://{proxy}", **how)
    return PoolManager(**how)


@contextlib.contextmanager
def absent_is_fine() -> Iterator[None]:
    """Ignore that an object does not exist."""
    try:
        yield
    except ApiError as e:
        if e.status != 404:
            raise


def _read(reply: Any) -> bytes:
    """A response, without what `_MANAGED` is. In pieces, as it may be some ten megabytes more."""
    parts, rest, left = list[bytes](), b"", MOST
    while piece := reply.read(_PIECE, decode_content=True):
        if (left := left - len(piece)) < 0:
            reply.close()
            raise _too_much()
        text = _MANAGED.sub(b"", rest + piece)
        begun = text.rfind(_BEGIN)
        at = begun if begun >= 0 else max(0, len(text) - len(_BEGIN))  # one may begin at the end
        parts.append(text[:at])
        rest = text[at:]
    return b"".join([*parts, rest])


def _too_much() -> TransportError:
    text = f"the Kubernetes API sent more than {MOST >> 20} MiB. Delete what is large in the namespace (kubectl get events,pods,jobsets)"
    return TransportError(text, again=False)


def _without(text: str, key: str) -> str:
    """The JSON of objects without the values of a key. No text can look like a key: quotes in a text are escaped."""
    decoder, mark, parts, at = json.JSONDecoder(), f',"{key}":', list[str](), 0
    while (found := text.find(mark, at)) >= 0:
        parts.append(text[at:found])
        at = decoder.raw_decode(text, found + len(mark))[1]
    return "".join([*parts, text[at:]])


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason).rpartition(": ")[2][:200]
