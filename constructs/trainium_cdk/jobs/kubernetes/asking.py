"""One request to the runner about the shared file system, in a pod on a system node."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.jobs import sent
from trainium_cdk.jobs.pyz import pyz
from trainium_cdk.runner.requests import Cluster, write_request

if TYPE_CHECKING:
    from trainium_cdk.jobs.kubernetes.backend import KubernetesBackend


def ask(backend: KubernetesBackend, given: Any) -> Any:
    """Its answer as plain data. Errors as of `Backend.ask_runner`."""
    cluster = backend.cluster
    seen = Cluster(cluster.shared_dir, cluster.folder, "", cluster.cluster_name, cluster.stack, cluster.region)
    request = json.dumps(write_request(seen, given))
    text = json.dumps({"runner": base64.b64encode(pyz().content).decode(), "request": request})
    printed = backend.run_python(sent.read("ask.py").decode(), text)
    try:
        told = json.loads(printed.splitlines()[-1])
        if "answer" in told:
            return told["answer"]
        kind, message = told["error"]["kind"], str(told["error"]["message"])
    except (ValueError, LookupError, TypeError):
        raise TransportError(f"the pod on {cluster.cluster_name} gave no answer: {printed[-300:]}") from None
    raise TransportError(f"{message}. Please report it", again=False) if kind == "broken" else JobError(message)
