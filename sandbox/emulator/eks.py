"""EKS with a real API server for its clusters.

For a cluster NAME, the file `$SANDBOX_DIR/eks/NAME.json`, written by `sandbox.kubernetes.eks.attach`, has the address of
its API server. DescribeCluster then returns that endpoint and its certificate. Bearer tokens (`k8s-aws-v1.` and a
presigned GetCallerIdentity) are always verified by their signature, as on EKS, even where the emulator accepts any key.
Access entries and their policies are applied: policies become ClusterRoles and bindings in the real API.
"""

from __future__ import annotations

import base64
import contextvars
import functools
import http.server
import json
import os
import secrets
import ssl
import subprocess
import threading
import urllib.request
from pathlib import Path
from typing import Any

from ministack import app
from ministack.core import lambda_runtime
from ministack.core.responses import get_region
from ministack.services import ec2, eks, lambda_svc

from sandbox import attach
from sandbox.emulator import ec2_groups
from sandbox.emulator.query import call_ec2, text_of

Hook = dict[str, Any]

_LABEL = eks._ACCESS_POLICY_BINDING_LABEL
_done: dict[tuple[str, str, str], str] = {}
_lock = threading.Lock()
_always = contextvars.ContextVar("_always", default=False)


class _Strict:
    """Replaces the emulator's AUTH switch: on while a token is verified or a function's role assumed, else as before."""

    def __init__(self, before: bool) -> None:
        self._before = before

    def __bool__(self) -> bool:
        return _always.get() or self._before


def _sandbox() -> Path:
    return Path(os.environ["SANDBOX_DIR"])


def hook(name: str) -> Hook | None:
    """The address of the cluster's API server, or None."""
    file = _sandbox() / "eks" / f"{name}.json"
    try:
        found: Hook = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    return found


def wait_for_api(name: str) -> None:
    """Wait until the cluster has its API server, if one was requested.

    Raises:
        sandbox.attach.AttachFailed: it could not be started.
    """
    cluster = eks._clusters[name]
    attach.wait(_sandbox(), "kubernetes", name, cluster["_attach"])
    _show(cluster)


def install() -> None:
    create, delete, sanitize = eks._create_cluster, eks._delete_cluster, eks._sanitize
    authenticate = eks._authenticate_token_review

    def create_cluster(body: dict[str, Any], creator_arn: str | None = None) -> Any:
        answer = create(body, creator_arn)
        if answer[0] < 400:
            cluster = eks._clusters[body["name"]]
            _make_security_group(cluster)
            cluster["_attach"] = attach.request(_sandbox(), "kubernetes", body["name"], get_region())
            _show(cluster)
        return answer

    def delete_cluster(name: str) -> Any:
        cluster = eks._clusters.get(name)
        answer = delete(name)
        if cluster is not None and answer[0] < 400:
            _forget_security_group(cluster)
            attach.withdraw(_sandbox(), "kubernetes", name)
        return answer

    def sanitized(cluster: dict[str, Any]) -> Any:
        _show(cluster)
        return sanitize(cluster)

    def review_token(name: str, account: str, region: str, review: dict[str, Any], secret: str = "") -> Any:
        found = hook(name)
        if found is None or not secrets.compare_digest(found["secret"], secret):
            return eks._token_review_response(review)
        known = eks._cluster_for_auth(name, account, region)
        if known is None:
            return eks._token_review_response(review)
        _show(known[2])
        switch = _always.set(True)
        try:
            answer = authenticate(name, account, region, review, secret)
        finally:
            _always.reset(switch)
        if json.loads(answer[2])["status"]["authenticated"]:
            reconcile(name, account, region)
        return answer

    def role_session(config: dict[str, Any]) -> dict[str, str]:
        """A function uses its role, not the account's root, because access entries distinguish them."""
        switch = _always.set(True)
        try:
            made: dict[str, str] = credentials(config)
        finally:
            _always.reset(switch)
        return made

    credentials = lambda_runtime.execution_credentials
    lambda_runtime.execution_credentials = lambda_svc.execution_credentials = role_session
    app.AUTH = _Strict(bool(app.AUTH))
    eks._create_cluster = create_cluster
    eks._delete_cluster = delete_cluster
    eks._sanitize = sanitized
    eks._authenticate_token_review = review_token
    eks._reconcile_access_policy_rbac = reconcile


def reconcile(name: str, account: str, region: str) -> bool:
    """Apply the roles and bindings of the cluster's access policies to the real API server, if they changed."""
    found = hook(name)
    if found is None:
        return False
    with _lock:
        names: list[str] = []
        policies = [association for *_, association in eks._access_policy_associations(name, account, region)]
        if any(policy.get("accessScope", {}).get("type") == "namespace" for policy in policies):
            items = _namespaces(found)
            names = [item["metadata"]["name"] for item in items]
        objects = eks._access_policy_rbac_objects(name, account, region, names)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}, sort_keys=True)
        if _done.get((account, region, name)) == found["secret"] + text:
            return True
        _kubectl(found, "apply", "-f", "-", stdin=text)
        wanted = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects}
        listed = _kubectl(found, "get", "clusterrolebindings,rolebindings", "-A", "-l", f"{_LABEL}=true", "-o", "json")
        for one in json.loads(listed)["items"]:
            kind, metadata = one["kind"], one["metadata"]
            if (kind, metadata.get("namespace"), metadata["name"]) not in wanted:
                where = [f"--namespace={metadata['namespace']}"] if "namespace" in metadata else []
                _kubectl(found, "delete", kind.lower(), metadata["name"], *where)
        _done[account, region, name] = found["secret"] + text
    return True


def _make_security_group(cluster: dict[str, Any]) -> None:
    """The group that EKS creates for each cluster, in the VPC of its subnets; ministack only returns an invented id."""
    network = cluster["resourcesVpcConfig"]
    subnets = [ec2._subnets[name] for name in network["subnetIds"] if name in ec2._subnets]
    if subnets:
        network["vpcId"] = subnets[0]["VpcId"]
        made = call_ec2(
            "CreateSecurityGroup",
            GroupName=f"eks-cluster-sg-{cluster['name']}-{secrets.randbelow(10**9)}",
            GroupDescription="EKS created security group applied to ENI that is attached to EKS Control Plane master "
            "nodes, as well as any managed workloads.",
            VpcId=network["vpcId"],
        )
        network["clusterSecurityGroupId"] = text_of(made, "groupId")


def _forget_security_group(cluster: dict[str, Any]) -> None:
    group = cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]
    if group in ec2._security_groups and not ec2_groups.users(group):  # one in use is left behind, with its tags
        call_ec2("DeleteSecurityGroup", GroupId=group)


def _show(cluster: dict[str, Any]) -> None:
    found = hook(cluster["name"])
    if found is None:
        cluster["endpoint"], cluster["certificateAuthority"] = _without_objects(), {"data": ""}
        return
    cluster["endpoint"] = found["endpoint"]
    cluster["certificateAuthority"] = {"data": found["ca"]}
    cluster["_auth_token"] = found["secret"]


class _WithoutObjects(http.server.BaseHTTPRequestHandler):
    """The API of a cluster without an API server: it has no objects, as the shims of kubectl and helm only record what they are given."""

    def do_GET(self) -> None:
        body = json.dumps({"items": [], "metadata": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@functools.cache
def _without_objects() -> str:
    """Its address, on this machine. It ends with the local AWS."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _WithoutObjects)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def _namespaces(found: Hook) -> list[dict[str, Any]]:
    """All namespaces. They are read at each review of a token, so without a kubectl where the sandbox wrote the kubeconfig."""
    try:
        [user] = json.loads(Path(found["kubeconfig"]).read_text("utf-8"))["users"]
        certificate = user["user"]["client-certificate"], user["user"]["client-key"]
    except (ValueError, KeyError):
        return list(json.loads(_kubectl(found, "get", "namespaces", "-o", "json"))["items"])
    context = ssl.create_default_context(cadata=base64.b64decode(found["ca"]).decode())
    context.load_cert_chain(*certificate)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    with opener.open(f"{found['endpoint']}/api/v1/namespaces", timeout=60) as response:
        return list(json.load(response)["items"])


def _kubectl(found: Hook, *arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        [found["kubectl"], f"--kubeconfig={found['kubeconfig']}", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
