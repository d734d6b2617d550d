"""The Kubernetes API, with the standard library: as an EKS access entry's identity."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest

_PAGE = 250
"""Objects of one response: only so many are in memory at once."""
_PAGE_BYTES = 16 << 20
"""Most bytes of a response with several objects: whoever may create them decides how large they are."""


class Kubernetes:
    """The API of a cluster, as the session's identity.

    Args:
        cluster: as returned by DescribeCluster.
    """

    def __init__(self, cluster: dict[str, Any], session: Any) -> None:
        self._endpoint = cluster["endpoint"]
        authority = base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
        https = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority))
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
        self._token = _token(cluster["name"], session)

    def list(self, path: str, select: str = "") -> Iterator[dict[str, Any]]:
        """All objects of a kind, page by page.

        Args:
            select: for example `labelSelector=a%3Db`.
        """
        more, count = "", _PAGE
        while True:
            most = _PAGE_BYTES if count > 1 else None
            page = self._call("GET", f"{path}?limit={count}{f'&{select}' if select else ''}{more}", most=most)
            if page is None:
                count = max(1, count // 4)
                continue
            yield from page["items"]
            if not (token := page["metadata"].get("continue")):
                return
            more = f"&continue={token}"

    def patch(self, path: str, body: dict[str, Any]) -> None:
        """Change an object (merge patch), unless it was deleted or changed in the meantime: the next run sees that.

        Raises:
            OSError: the API refused it or cannot be reached.
        """
        self._change("PATCH", path, body, 404, 409)

    def create(self, path: str, body: dict[str, Any]) -> None:
        """Create an object below a path, unless there is one with its name.

        Raises:
            OSError: the API refused it or cannot be reached.
        """
        self._change("POST", path, body, 409)

    def get(self, path: str) -> dict[str, Any] | None:
        """One object; None if it does not exist."""
        try:
            return self._call("GET", path)  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def delete(self, path: str, uid: str) -> None:
        """Begin to delete the object with this uid. One that is gone, or was made again, is not an error.

        Raises:
            OSError: the API refused it or cannot be reached.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        self._change("DELETE", path, body, 404, 409)

    def _change(self, method: str, path: str, body: dict[str, Any], *expected: int) -> None:
        """`expected`: codes that are not errors."""
        try:
            self._call(method, path, body)
        except urllib.error.HTTPError as error:
            if error.code not in expected:
                raise OSError(
                    f"{method} {path}: HTTP {error.code}: {error.read(1000).decode(errors='replace')}"
                ) from None

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None, most: int | None = None) -> Any:
        """The answer; None if it has more than `most` bytes."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers |= {"Content-Type": kind} if body else {}
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self._endpoint + path, data, headers, method=method)  # noqa: S310  https, EKS's
        try:
            with self._opener.open(request, timeout=30) as reply:
                text = reply.read() if most is None else reply.read(most + 1)
                return None if most is not None and len(text) > most else json.loads(text)
        except (http.client.HTTPException, ValueError) as error:  # cut off: no OSError
            raise OSError(f"{method} {path}: {error!r}") from None


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
