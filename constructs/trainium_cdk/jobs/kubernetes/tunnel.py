"""A tunnel to a private Kubernetes API: a port of this machine, forwarded through the stack's bastion host by Session Manager."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from trainium_cdk._aws import credentials_error
from trainium_cdk.errors import TransportError
from trainium_cdk.jobs.kubernetes.access import Endpoint
from trainium_cdk.outputs import EksCluster

PLUGIN = "session-manager-plugin"
_DOCUMENT = "AWS-StartPortForwardingSessionToRemoteHost"
_RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
_LEAST = (1, 2, 497)
"""First version that takes the session's secret from its environment, and not from its command line, which other users can read."""
_DIRECT_SECONDS = 3.0
_READY_SECONDS = 30.0


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
    if cluster.endpoint != "private" or _answers(host, number, _DIRECT_SECONDS):
        return endpoint
    if not cluster.bastion_host_id:
        raise TransportError(
            f"the Kubernetes API of {cluster.cluster_name} is private, cannot be reached from here, and {cluster.stack} has no "
            "bastion host. Work from inside its VPC, or deploy with eks.bastion_host"
        )
    port = port or _free_port()
    _open(cluster, host, number, port)
    return replace(endpoint, url=f"https://127.0.0.1:{port}", server_name=host)


def _answers(host: str, port: int, timeout: float) -> bool:
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _plugin() -> str:
    found = shutil.which(PLUGIN)
    if found is None:
        raise TransportError(
            f"the Kubernetes API is private, and is reached through the bastion host by {PLUGIN}, which is not installed. Install it "
            "(AWS Systems Manager user guide), or work from inside the VPC"
        )
    version = subprocess.run(
        [found, "--version"], capture_output=True, text=True, timeout=20, check=False
    ).stdout.strip()
    numbers = tuple(int(n) for n in version.split(".")[:3] if n.isdigit())
    if numbers < _LEAST:
        raise TransportError(
            f"{PLUGIN} is {version or 'of no known version'}; {'.'.join(map(str, _LEAST))} or newer is needed, which keeps the "
            "session's secret off its command line. Install a newer one"
        )
    return found


def _open(cluster: EksCluster, host: str, number: int, port: int) -> None:
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    plugin = _plugin()
    wanted: dict[str, Any] = {
        "Target": cluster.bastion_host_id,
        "DocumentName": _DOCUMENT,
        "Parameters": {"host": [host], "portNumber": [str(number)], "localPortNumber": [str(port)]},
    }
    try:
        ssm = boto3.client("ssm", region_name=cluster.region)
        session = ssm.start_session(**wanted)
    except (ClientError, BotoCoreError) as e:
        reason = credentials_error(e) or f"{e}. Is it running, and may you call ssm:StartSession on it?"
        raise TransportError(f"no session with the bastion host {cluster.bastion_host_id}: {reason}") from None
    secret = json.dumps({key: session[key] for key in ("SessionId", "TokenValue", "StreamUrl")})
    command = [plugin, _RESPONSE, cluster.region, "StartSession", "", json.dumps(wanted), ssm.meta.endpoint_url]
    process = subprocess.Popen(
        command,
        env={**os.environ, _RESPONSE: secret},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is handled in this process, which then ends it
    )

    def end() -> None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        if process.stderr:
            process.stderr.close()
        with contextlib.suppress(ClientError, BotoCoreError):
            ssm.terminate_session(SessionId=session["SessionId"])

    atexit.register(end)
    until = time.monotonic() + _READY_SECONDS
    while not _answers("127.0.0.1", port, 1.0):
        if process.poll() is not None:
            error = (process.stderr.read() if process.stderr else "").strip().splitlines()[-1:]
            raise TransportError(
                f"the tunnel through {cluster.bastion_host_id} ended: {' '.join(error) or 'no reason reported'}"
            )
        if time.monotonic() > until:
            raise TransportError(
                f"the tunnel through {cluster.bastion_host_id} was not open within {_READY_SECONDS:.0f} s. Is its SSM agent online?"
            )
        time.sleep(0.2)
