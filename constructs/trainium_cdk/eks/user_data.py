"""The user data of a Trainium node, for nodeadm and cloud-init of the EKS AL2023 images. Pure.
The scripts run before the kubelet starts (nodeadm-run waits for cloud-final), so that it reports what they set up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainium_cdk.node import yaml

BOUNDARY = "==TRN=="
_LIMITS = (("RLIMIT_NOFILE", 65_536, 1_048_576), ("RLIMIT_MEMLOCK", 1 << 50, 1 << 50))
"""(limit, soft, hard) of containers. The list replaces the image's, so its limit of open files is repeated (amazon-eks-ami
v20260724, nodeadm's base-runtime-spec.json). Memory: 1 PiB, more than any node has. Not the largest integer, which means
no limit: nodeadm merges specifications as JSON with 64-bit floats, which would round it up to an invalid one."""
_HUGE_PAGE_MIB = 2
_LUSTRE = """\
# Not part of the EKS images; without its kernel modules no Lustre file system can be mounted
for attempt in 1 2 3 4 5; do
  dnf install -y lustre-client && break
  sleep $((attempt * 10))
done
modprobe lustre
"""

_LNC = """\
# Read by Neuron's device plug-in and runtime (Neuron documentation, EKS prerequisites, 2026-08)
mkdir -p /opt/aws/neuron
echo "NEURON_LOGICAL_NC_CONFIG={lnc}" > /opt/aws/neuron/logical_nc_config
"""


@dataclass(frozen=True)
class ApiServer:
    """The cluster's API for a node with a custom image. (EKS passes this to its own images automatically.)

    Values may be CDK tokens.
    """

    name: str
    endpoint: str
    authority: str
    cidr: str
    """IPv4 network of the services."""


def user_data(
    *,
    huge_pages: str = "",
    locked_memory: bool = False,
    local_storage: bool = False,
    lustre: bool = False,
    lnc: int | None = None,
    own: str | None = None,
    cluster: ApiServer | None = None,
) -> str:
    """MIME multi-part user data; may be empty.

    Args:
        huge_pages: minimum memory in pages of 2 MiB that the kubelet reports, for example `5120Mi`.
        locked_memory: let containers lock memory practically without limit, which EFA needs: a pod without capabilities that
            does not run as root has the container's limit.
        local_storage: join the instance's NVMe disks into one RAID-0 volume for containers and their scratch data.
        lustre: install the Lustre client.
        lnc: physical NeuronCores of a logical one; None = the driver's default.
        own: the user's script, run after these.
        cluster: only for a custom image.
    """
    parts = []
    script = (_huge_pages(huge_pages) if huge_pages else "") + (_LUSTRE if lustre else "")
    script += _LNC.format(lnc=lnc) if lnc else ""
    if script:
        parts.append(("text/x-shellscript", f"#!/bin/bash\nset -u\n{script}"))
    if own:
        parts.append(("text/x-shellscript", own))
    if config := _node_config(locked_memory, local_storage, cluster):
        parts.append(("application/node.eks.aws", config))
    if not parts:
        return ""
    body = "".join(f'--{BOUNDARY}\nContent-Type: {kind}; charset="utf-8"\n\n{text}\n' for kind, text in parts)
    return f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{BOUNDARY}"\n\n{body}--{BOUNDARY}--\n'


def _huge_pages(memory: str) -> str:
    found = re.fullmatch(r"(\d+)(Mi|Gi)", memory)
    if not found:
        raise ValueError(f"{memory!r} is not an amount of memory: write it in Mi or Gi, for example 5120Mi")
    mib = int(found[1]) * (1024 if found[2] == "Gi" else 1)
    return f"""\
# The images set some aside for EFA already: never fewer than that
pages={-(-mib // _HUGE_PAGE_MIB)}
if [ "$(cat /proc/sys/vm/nr_hugepages)" -lt "$pages" ]; then
  echo "vm.nr_hugepages = $pages" > /etc/sysctl.d/99-trn-hugepages.conf
  sysctl -p /etc/sysctl.d/99-trn-hugepages.conf
fi
"""


@cache
def _node_config(locked_memory: bool, local_storage: bool, cluster: ApiServer | None) -> str:
    spec: dict[str, Any] = {}
    if cluster:
        spec["cluster"] = {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.authority,
            "cidr": cluster.cidr,
        }
    if locked_memory:
        limits = [{"type": name, "soft": soft, "hard": hard} for name, soft, hard in _LIMITS]
        spec["containerd"] = {"baseRuntimeSpec": {"process": {"rlimits": limits}}}
    if local_storage:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if not spec:
        return ""
    config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return yaml.dump(config, width=10_000)  # keeps tokens and certificates on one line
