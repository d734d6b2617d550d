"""The user data of a Trainium node, for nodeadm and cloud-init of the EKS AL2023 images. Pure.
The scripts run before the kubelet starts (nodeadm-run waits for cloud-final), so that it reports what they set up.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainium_cdk.description.node import yaml

BOUNDARY = "==TRN=="
_LIMITS = (("RLIMIT_NOFILE", 65_536, 1_048_576), ("RLIMIT_MEMLOCK", 1 << 50, 1 << 50))
"""(limit, soft, hard) of containers. The list replaces the image's, so its limit of open files is repeated (amazon-eks-ami
v20260724, nodeadm's base-runtime-spec.json). Memory: 1 PiB, more than any node has. Not the largest integer, which means
no limit: nodeadm merges specifications as JSON with 64-bit floats, which would round it up to an invalid one."""
_HUGE_PAGE_MIB = 2
_GATE = """\
# nodeadm, which joins the cluster, runs after this script, and only if this file is gone: whatever fails, the node does not join
gate=/etc/systemd/system/nodeadm-run.service.d/trn-{name}.conf
mkdir -p "${{gate%/*}}"
printf '[Unit]\nAssertPathExists=!%s\n' "$gate" > "$gate"
systemctl daemon-reload
fail() {{
  echo "trn: no {what}, so this node does not join the cluster: $1" | tee /dev/console
  exit 1
}}
"""
_LUSTRE = (
    """\
#!/bin/bash
# Not part of the EKS images; without its kernel modules no Lustre file system can be mounted
set -uo pipefail
"""
    + _GATE.format(name="lustre", what="Lustre client")
    + """\
for attempt in 1 2 3 4 5; do
  dnf install -y lustre-client && break
  sleep "${TRN_RETRY_DELAY:-$((attempt * 10))}"
done
command -v mount.lustre > /dev/null || fail "lustre-client cannot be installed; see /var/log/cloud-init-output.log"
modprobe lustre || fail "its kernel module cannot be loaded; see /var/log/cloud-init-output.log and dmesg"
rm "$gate"
"""
)
"""A Trainium node without it would wait, at its full price, for pods that cannot mount their volume."""

_LNC = """\
# Read by Neuron's device plug-in and runtime (Neuron documentation, EKS prerequisites, 2026-08)
mkdir -p /opt/aws/neuron
echo "NEURON_LOGICAL_NC_CONFIG={lnc}" > /opt/aws/neuron/logical_nc_config
"""

_DRIVER = """\
#!/bin/bash
# The image has another Neuron driver than the jobs' runtime is for
set -uo pipefail
wanted={version}
loaded() {{ sed 's/[^0-9.].*//' /sys/module/neuron/version 2> /dev/null; }}
if [ "$(loaded)" = "$wanted" ]; then exit 0; fi
{gate}key=/etc/pki/rpm-gpg/RPM-GPG-KEY-aws-neuron home=$(mktemp -d)
curl -fsSL --retry 5 --retry-all-errors --max-time 60 --create-dirs -o "$key" {key} || fail "cannot download {key}"
found=$(gpg --homedir "$home" --batch --show-keys --with-colons "$key" | awk -F: '$1 == "pub" {{ p = 1 }} $1 == "fpr" && p {{ print $10; p = 0 }}')
[ "$found" = {fingerprint} ] || fail "the key {key} has the fingerprint $found"
rpm --import "$key"
cat > /etc/yum.repos.d/neuron.repo << END
[neuron]
name=neuron
baseurl={yum}
enabled=0
gpgcheck=1
gpgkey=file://$key
END
# The package asks a server for PCI names, and hangs where it is not reached
update-pciids() {{ :; }}
export -f update-pciids
# An update fails where the old driver is loaded: it is removed first, as by the images' own neuron-package-install.sh
rpm -q aws-neuronx-dkms > /dev/null && {{ rpm --erase aws-neuronx-dkms || fail "the image's driver cannot be removed"; }}
for attempt in 1 2 3 4 5; do
  dnf -y --enablerepo=neuron --setopt=install_weak_deps=False install "aws-neuronx-dkms-$wanted" && break
  sleep "${{TRN_RETRY_DELAY:-$((attempt * 10))}}"
done
modprobe neuron
[ "$(loaded)" = "$wanted" ] || fail "the loaded one is '$(loaded)'; see /var/log/cloud-init-output.log and /var/lib/dkms/aws-neuronx/*/build/make.log"
rm "$gate"
"""
NEURON_FINGERPRINT = "00FA2C1079260870A76D2C285749CAD8646D9185"
"""Fingerprint of the key that signs Neuron's packages ("Amazon AWS Neuron <neuron-maintainers@amazon.com>"), as Slurm nodes expect it, too."""


@dataclass(frozen=True)
class Driver:
    """Neuron's driver, which a node installs when it starts.

    Attributes:
        version: of aws-neuronx-dkms, for example 2.31.7.0.
        yum: address of the repository.
        key: address of the key that signs it.
        fingerprint: of this key.
    """

    version: str
    yum: str
    key: str
    fingerprint: str = NEURON_FINGERPRINT

    @property
    def script(self) -> str:
        words = {"version": self.version, "yum": self.yum, "key": self.key, "fingerprint": self.fingerprint}
        gate = _GATE.format(name="driver", what="Neuron driver $wanted")
        return _DRIVER.format(gate=gate, **{name: shlex.quote(word) for name, word in words.items()})


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
    driver: Driver | None = None,
    own: str | None = None,
    cluster: ApiServer | None = None,
) -> str:
    """MIME multi-part user data; may be empty.

    Args:
        huge_pages: minimum memory in pages of 2 MiB that the kubelet reports, for example `5120Mi`.
        locked_memory: let containers lock memory practically without limit, which EFA needs: a pod without capabilities that
            does not run as root has the container's limit.
        local_storage: join the instance's NVMe disks into one RAID-0 volume for containers and their scratch data.
        lustre: install the Lustre client; a node without it does not join the cluster.
        lnc: physical NeuronCores of a logical one; None = the driver's default.
        driver: None = the image's.
        own: the user's script, run after these.
        cluster: only for a custom image.
    """
    parts = []
    script = _huge_pages(huge_pages) if huge_pages else ""
    script += _LNC.format(lnc=lnc) if lnc else ""
    if script:
        parts.append(("text/x-shellscript", f"#!/bin/bash\nset -u\n{script}"))
    if lustre:
        parts.append(("text/x-shellscript", _LUSTRE))
    if driver:
        parts.append(("text/x-shellscript", driver.script))
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
