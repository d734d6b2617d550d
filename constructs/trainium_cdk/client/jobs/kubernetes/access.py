"""Access to the Kubernetes API of an EKS cluster with boto3 alone: its endpoint, its certificate authority, tokens, and
a tunnel to a private one through the stack's bastion host."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from trainium_cdk._aws import aws_errors_as, code_and_message, credentials_error, describe_error, failures
from trainium_cdk._aws import client as aws_client
from trainium_cdk.client.jobs.forward import TO_HOST, answers, forward_port, free_port
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.errors import TransportError

_PREFIX = "k8s-aws-v1."
_SIGNED_SECONDS = 60
TOKEN_SECONDS = 14 * 60
"""EKS accepts a token for 15 minutes after it was signed (EKS user guide)."""
_DIRECT_SECONDS = 3.0
_EXEC_API = "client.authentication.k8s.io/v1"


@dataclass(frozen=True)
class Endpoint:
    """The endpoint of a cluster's API.

    Attributes:
        url: for example https://ABC.gr7.us-east-1.eks.amazonaws.com.
        authority: certificate of its certificate authority, PEM.
        server_name: the name in its certificate if `url` has another one, as through a tunnel.
    """

    url: str
    authority: str
    server_name: str = ""


@dataclass(frozen=True)
class Token:
    """A bearer token, and when it expires."""

    value: str = field(repr=False)
    until: dt.datetime

    def to_exec_credential(self) -> str:
        """The format that `kubectl` reads from a credential plug-in (client.authentication.k8s.io/v1)."""
        credential = {
            "apiVersion": _EXEC_API,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
            "status": {"token": self.value, "expirationTimestamp": f"{self.until:%Y-%m-%dT%H:%M:%SZ}"},
        }
        return json.dumps(credential)


class Identity:
    """The caller of a cluster's API: the stack's access role if these credentials may assume it, otherwise the credentials.

    Args:
        session: boto3 session. Default: boto3's default session.
    """

    def __init__(self, cluster_name: str, region: str, *, role: str = "", session: Any = None) -> None:
        import boto3

        self._name, self._region, self._role = cluster_name, region, role
        self._session = session or boto3.Session(region_name=region)
        self._taken: Any = None
        self._assumed = False
        self._ends = dt.datetime.min.replace(tzinfo=dt.UTC)

    @classmethod
    def of(cls, cluster: EksCluster) -> Identity:
        return cls(cluster.cluster_name, cluster.region, role=cluster.access_role)

    def token(self, now: dt.datetime | None = None) -> Token:
        """A new token: a presigned GetCallerIdentity with the cluster's name in it.

        Raises:
            TransportError: no credentials were found, or the role that these tokens were for cannot be assumed again now.
        """
        from botocore.auth import SigV4QueryAuth
        from botocore.awsrequest import AWSRequest

        now = now or dt.datetime.now(dt.UTC)
        request = AWSRequest(
            "GET",
            f"https://{self._sts_host()}/",
            params={"Action": "GetCallerIdentity", "Version": "2011-06-15"},
            headers={"x-k8s-aws-id": self._name},
        )
        SigV4QueryAuth(self._credentials(now), "sts", self._region, expires=_SIGNED_SECONDS).add_auth(request)
        url = str(request.prepare().url).encode()
        value = _PREFIX + base64.urlsafe_b64encode(url).decode().rstrip("=")
        return Token(value, now + dt.timedelta(seconds=TOKEN_SECONDS))

    def why_unknown(self) -> str:
        """Describe why a cluster rejects these tokens: the credentials have expired, or have no access entry."""
        from trainium_cdk.description.settings.principals import principal

        try:
            mine = self._credentials(dt.datetime.now(dt.UTC))
            caller = aws_client(
                "sts",
                self._region,
                session=self._session,
                aws_access_key_id=mine.access_key,
                aws_secret_access_key=mine.secret_key,
                aws_session_token=mine.token,
            ).get_caller_identity()["Arn"]
        except failures() as e:
            return describe_error(e)
        found = principal(caller)
        of_role = f" for the role whose ARN this prints: {found.look_up}" if found and found.session else ""
        return (
            f"{caller} has no access to cluster {self._name}. Add an access entry (eks.access in the environment file, or "
            f"TrnPlugins.grant_access in your own app){of_role}; or use credentials that have one"
        )

    def _sts_host(self) -> str:
        # the AWS service even if AWS_ENDPOINT_URL is set: EKS accepts no other host
        china = self._session.get_partition_for_region(self._region) == "aws-cn"
        return f"sts.{self._region}.amazonaws.com{'.cn' if china else ''}"

    def _credentials(self, now: dt.datetime) -> Any:
        from botocore.credentials import Credentials

        own = self._session.get_credentials()
        if own is None:
            raise TransportError("no AWS credentials found. Log in (aws sso login), or set AWS_PROFILE")
        if not self._role:
            return own.get_frozen_credentials()
        if self._taken is None or now >= self._ends:
            try:
                sts = aws_client("sts", self._region, session=self._session)
                name = session_name(sts.get_caller_identity()["Arn"])
                taken = sts.assume_role(RoleArn=self._role, RoleSessionName=name)["Credentials"]
            except failures() as e:
                # it could be assumed before: with other credentials the cluster would refuse the same request
                if self._assumed and code_and_message(e)[0] != "AccessDenied":
                    what = f"cannot assume the role {self._role} again: {describe_error(e)}"
                    raise TransportError(what, again=not credentials_error(e)) from None
                # a caller that may not assume it may have its own access entry: the cluster decides
                self._taken, self._ends = own.get_frozen_credentials(), now + dt.timedelta(minutes=10)
            else:
                self._taken = Credentials(taken["AccessKeyId"], taken["SecretAccessKey"], taken["SessionToken"])
                self._ends = taken["Expiration"] - dt.timedelta(minutes=5)
                self._assumed = True
        return self._taken


def session_name(caller: str) -> str:
    """The session name of the access role, so that audit log and CloudTrail show the user: `trn-<user or session>`.

    Args:
        caller: ARN of the caller.
    """
    return ("trn-" + re.sub(r"[^\w+=,.@-]", "-", caller.rpartition("/")[2], flags=re.ASCII))[:64]


def find(cluster: EksCluster) -> Endpoint:
    """Get the endpoint of the cluster's API from EKS.

    Raises:
        TransportError: no credentials, or the cluster does not exist or is not active.
    """
    name = cluster.cluster_name
    with aws_errors_as(TransportError, f"EKS did not describe cluster {name}"):
        client = aws_client("eks", cluster.region)
        try:
            found = client.describe_cluster(name=name)["cluster"]
        except client.exceptions.ResourceNotFoundException:
            raise TransportError(
                f"there is no EKS cluster {name} in {cluster.region}. Was {cluster.stack} destroyed? Deploy it, or name another "
                "with --stack"
            ) from None
    if "endpoint" not in found or found.get("status") == "CREATING":
        raise TransportError(f"EKS cluster {name} is {found.get('status', 'not ready')}. Wait until it is ACTIVE")
    authority = base64.b64decode(found["certificateAuthority"]["data"]).decode()
    return Endpoint(found["endpoint"], authority)


def reach(cluster: EksCluster, endpoint: Endpoint, *, port: int = 0) -> Endpoint:
    """An endpoint that can be reached from here: the API itself, or the near end of a tunnel to it, which lasts as long as this
    process.

    Args:
        port: of this machine, for the tunnel. Default: a free one.

    Raises:
        TransportError: it cannot be reached, and no tunnel can be opened.
    """
    parts = urlsplit(endpoint.url)
    host, number = parts.hostname or "", parts.port or 443
    if cluster.endpoint != "private" or answers(host, number, _DIRECT_SECONDS):
        return endpoint
    if not cluster.bastion_host_id:
        raise TransportError(
            f"the Kubernetes API of {cluster.cluster_name} is private, cannot be reached from here, and {cluster.stack} has no "
            "bastion host. Work from inside its VPC, or deploy with eks.bastion_host"
        )
    port = port or free_port()
    forward_port(cluster.bastion_host_id, cluster.region, TO_HOST, {"host": host, "portNumber": str(number)}, port)
    return replace(endpoint, url=f"https://127.0.0.1:{port}", server_name=host)


def kubeconfig(cluster: EksCluster, endpoint: Endpoint, command: list[str]) -> str:
    """A kubeconfig whose credentials come from `command`, for kubectl and other clients.

    Args:
        command: prints an ExecCredential: `trn token ...`.
    """
    from trainium_cdk.description.node import yaml

    name = cluster.cluster_name
    server: dict[str, Any] = {
        "server": endpoint.url,
        "certificate-authority-data": base64.b64encode(endpoint.authority.encode()).decode(),
    }
    if endpoint.server_name:
        server["tls-server-name"] = endpoint.server_name
    plugin = {
        "apiVersion": _EXEC_API,
        "command": command[0],
        "args": command[1:],
        "interactiveMode": "Never",
        "installHint": "trn is the command of trainium-cdk. Activate the virtual environment in which it is installed",
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": server}],
        "users": [{"name": name, "user": {"exec": plugin}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": cluster.namespace}}],
        "current-context": name,
    }
    return yaml.dump(config, width=100_000)
