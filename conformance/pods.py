"""A local Kubernetes whose pods run the vendors' programs: two virtual nodes of one worker each, and a system node.

Images are not pulled: the pods see this machine's files, and in `/image` an image's programs, which are those of `.venvs/vendor`.
"""

from __future__ import annotations

import datetime as dt
import os
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from conformance import vendor
from conformance.upstream import NotAvailable, Tree
from sandbox import head_node
from sandbox.kubernetes import LocalKubernetes, available, supplier
from tests.jobs.kubernetes.conftest import VOLUME, apply, base_objects, fleet, make_cluster, until_open
from trainium_cdk.client.jobs.kubernetes import Api, KubernetesBackend
from trainium_cdk.client.jobs.kubernetes.access import Endpoint, Identity, Token
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL, ROLE_LABEL

_IMAGE = Path("/image")
_USER = "conformance"
_PYTHON = """#!/bin/sh
# The image's Python: what it has, new virtual environments have as well.
export PYTHONPATH={modules}
if [ "${{1:-}} ${{2:-}}" != '-m venv' ]; then exec {python} "$@"; fi # it may be a container's first process
{python} "$@" || exit
for last; do :; done
for packages in "$last"/lib/python*/site-packages; do
  printf '%s\\n' {packages} > "$packages/vendor.pth"
done
"""


@contextmanager
def started(
    folder: Path, sources: Mapping[str, tuple[Tree, str]], hub: str
) -> Iterator[tuple[KubernetesBackend, Path]]:
    """Such a cluster: its jobs, and the folder that is /efs in its pods.

    Args:
        sources: see `vendor.repositories`.
        hub: URL of the Hugging Face hub.

    Raises:
        NotAvailable: a local Kubernetes cannot run here.
    """
    if (reason := available()) is not None:
        raise NotAvailable(reason)
    environment = {
        **vendor.variables(_IMAGE / "gitconfig", hub),
        "PATH": os.pathsep.join([str(_IMAGE / "bin"), os.environ.get("PATH", os.defpath)]),
        "GIT_CONFIG_NOSYSTEM": "1",
        "PIP_NO_INDEX": "1",
        "TRN_SAMPLES_REF": head_node.REF,
        "TRN_SYS_ROOT": str(_IMAGE),
    }
    with (
        LocalKubernetes.start(folder, run_jobs=True, job_environment=environment, volcano=True) as kubernetes,
        supplier.supplying(kubernetes),
    ):
        _image(kubernetes.directory / "image" / _IMAGE.name, sources)
        labels = {GROUP_LABEL: "trn", ROLE_LABEL: "training"}
        kubernetes.add_nodes(Catalog.load().instance("trn1.32xlarge"), 2, zone="us-east-1b", labels=labels)
        kubernetes.add_system_nodes(labels={ROLE_LABEL: "system"})
        apply(kubernetes, base_objects())
        until_open(kubernetes)
        cluster = make_cluster(fleet(devices=1, cores=1), neuron_release="2.28.1")
        endpoint = Endpoint(kubernetes.endpoint, b64decode(kubernetes.ca_data).decode())
        backend = KubernetesBackend(cluster, lambda: Api(endpoint, _identity(kubernetes), cluster.namespace))
        try:
            yield backend, kubernetes.directory / "volumes" / VOLUME
        finally:
            backend.api.close()


def _image(where: Path, sources: Mapping[str, tuple[Tree, str]]) -> None:
    vendor.repositories(where, sources, seen=_IMAGE)
    vendor.modules(where / "modules")
    head_node.driver(where)
    programs = where / "bin"
    programs.mkdir()
    paths = [*vendor.packages(), _IMAGE / "modules"]
    python = _PYTHON.format(
        modules=_IMAGE / "modules", python=vendor.PYTHON, packages=" ".join(head_node.quoted(str(p)) for p in paths)
    )
    for name, text in (("python3", python), ("neuron_parallel_compile", vendor.PARALLEL_COMPILE)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)


def _identity(kubernetes: LocalKubernetes) -> Identity:
    """Tokens of a service account that may do everything: who may do what is tested elsewhere."""
    for command in (
        ["create", "serviceaccount", _USER],
        ["create", "clusterrolebinding", _USER, "--clusterrole=cluster-admin", f"--serviceaccount=default:{_USER}"],
    ):
        kubernetes.kubectl(*command)

    class Tokens:
        def token(self, now: dt.datetime) -> Token:
            made = kubernetes.kubectl("create", "token", _USER, "--duration=1h")
            return Token(made.stdout.strip(), now + dt.timedelta(minutes=50))

        def why_unknown(self) -> str:
            return "the token is not known"

    return cast("Identity", Tokens())
