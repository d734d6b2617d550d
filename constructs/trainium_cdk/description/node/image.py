"""An image for Slurm nodes with the Neuron packages, for `pcluster build-image`. Pure: no AWS and no CDK.
Its nodes need not install packages and build the driver at each start, which takes three to four minutes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import textwrap
from dataclasses import dataclass
from typing import Any

from trainium_cdk.description.node import env as node_env
from trainium_cdk.description.node.scripts import CONFIGURE, files, scripts_dir
from trainium_cdk.description.outputs.contract import SOURCES
from trainium_cdk.description.settings import Environment

ROOM_GIB = 10
"""GiB by which the image's volume is larger than the volume of ParallelCluster's image."""

_SCRIPT = """\
#!/usr/bin/env bash
# Installs what the nodes of a Trainium cluster need, while ParallelCluster builds their image (trainium-cdk).
set -Eeuo pipefail
work="$(mktemp -d)"
trap 'rm -rf "${{work}}"' EXIT
base64 -d <<'SCRIPTS' | tar -xz -C "${{work}}"
{packed}
SCRIPTS
bash "${{work}}/{configure}" TRN_NODE_ROLE=image
rm -rf /var/lib/trn-bootstrap /var/log/trn-bootstrap.log # the build's own, not the later nodes'
"""


@dataclass(frozen=True)
class Bake:
    """An image to build.

    Attributes:
        image_id: ParallelCluster's name for it. The same settings, scripts and base have the same name.
        script: run by the build: the node scripts with their settings, in one file.
        key: key of the script in the stack's bucket.
        configuration: the input of `pcluster build-image`.
    """

    image_id: str
    script: str
    key: str
    configuration: dict[str, Any]


def bake(
    env: Environment,
    *,
    parent_image: str,
    bucket: str,
) -> Bake:
    """The image of an environment's nodes.

    Args:
        parent_image: ParallelCluster's own image of the environment's version and operating system.
        bucket: S3 bucket for the script.

    Raises:
        FileNotFoundError: the installation lacks the scripts.
    """
    text = script(node_env.render(env, image=True))
    digest = hashlib.sha256(f"{parent_image}\n{text}".encode()).hexdigest()[:8]
    image_id = f"{env.name}-neuron-{env.release.version.replace('.', '-')}-{env.pcluster.os}-{digest}"
    key = f"{SOURCES}{image_id}.sh"
    build: dict[str, Any] = {
        "InstanceType": env.pcluster.head.instance_type,
        "ParentImage": parent_image,
        "Imds": {"ImdsSupport": "v2.0"},
        "UpdateOsPackages": {"Enabled": False},  # another kernel than the one that ParallelCluster was tested with
        "Components": [{"Type": "script", "Value": f"s3://{bucket}/{key}"}],
    }
    size = env.catalog.parallelcluster.root_volume_gib(env.pcluster.version) + ROOM_GIB
    tags = {**env.tags, "trainium:neuron-release": env.release.version}
    configuration: dict[str, Any] = {
        "Region": env.region,
        "Image": {
            "RootVolume": {"Size": size, "Encrypted": True},
            "Tags": [{"Key": name, "Value": value} for name, value in sorted(tags.items())],
        },
        "Build": build,
        # the base is ParallelCluster's own image: its software is there already, and takes an hour to install
        "DevSettings": {"DisablePclusterComponent": True},
    }
    return Bake(image_id, text, key, configuration)


def script(settings: str) -> str:
    """The build's script: the node scripts, with `settings` as their node.env. The same bytes for the same content.

    Raises:
        FileNotFoundError: the installation lacks the scripts.
    """
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for name, content in files(scripts_dir(), settings).items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755 if name == CONFIGURE else 0o644
            archive.addfile(member, io.BytesIO(content))
    lines = textwrap.wrap(base64.b64encode(packed.getvalue()).decode(), 76)
    return _SCRIPT.format(packed="\n".join(lines), configure=CONFIGURE)
