"""Start the emulator: ministack with the sandbox's additions. `sandbox.local_aws` runs it in `.venvs/aws`.

Variables, besides ministack's own:
SANDBOX_DIR (the sandbox's folder), SANDBOX_SOURCE (the folder that holds the package `sandbox`),
SANDBOX_PCLUSTER_PYTHON and SANDBOX_PCLUSTER_VERSION, SANDBOX_FAULTS and SANDBOX_OFFERINGS (optional files),
SANDBOX_PARENT (optional: ends when this process ends). Files in the sandbox's folder change responses while it runs: quotas.json,
capacity.json (see eks_scaling), reservations.json, block-offerings.json, regions.json and spot.json (see ec2_regions),
eks-versions.json, run-command.json (see ssm).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from ministack import app
from ministack.core import iam_actions, router
from ministack.services import ec2

from sandbox.emulator import (
    cfn,
    ec2_catalogue,
    ec2_ebs,
    ec2_endpoints,
    ec2_groups,
    ec2_keypairs,
    ec2_launch,
    ec2_regions,
    ec2_reservations,
    eks,
    eks_scaling,
    eks_versions,
    fsx,
    iam_users,
    lambda_logs,
    log_pages,
    pcluster_provider,
    pcs,
    service_quotas,
    ssm,
)
from sandbox.emulator.query import ApiError, Response, ec2_error


def _guarded(action: Callable[[dict[str, Any]], Response]) -> Callable[[dict[str, Any]], Response]:
    """The action, with ApiError returned as EC2's error response."""

    def run(params: dict[str, Any]) -> Response:
        try:
            ec2_regions.require_enabled()
            return action(params)
        except ApiError as error:
            return ec2_error(error)

    return run


def install() -> None:
    """Install all additions to ministack."""
    for module in (ec2_catalogue, ec2_reservations, ec2_regions, ec2_keypairs, ec2_groups, ec2_ebs, ec2_endpoints):
        ec2._ACTION_MAP.update(module.ACTIONS)
    ec2_groups.install()
    ec2_ebs.install()
    ec2_reservations.install()
    ec2_launch.install_placement()
    ec2_launch.keep_in_templates()
    ec2_launch.filter_instances()
    ec2._ACTION_MAP.update(ec2_launch.wrapped_actions())
    ec2._ACTION_MAP.update({name: _guarded(action) for name, action in ec2._ACTION_MAP.items()})
    ec2._zone_name_for_az_id = ec2_catalogue.zone_name
    router.SERVICE_PATTERNS["fsx"] = {"target_prefixes": [fsx.TARGET]}
    app.SERVICE_HANDLERS["fsx"] = fsx.handle_request
    router.SERVICE_PATTERNS["pcs"] = {"target_prefixes": [pcs.TARGET]}
    app.SERVICE_HANDLERS["pcs"] = pcs.handle_request
    router.SERVICE_PATTERNS["servicequotas"] = {"target_prefixes": [service_quotas.TARGET]}
    app.SERVICE_HANDLERS["servicequotas"] = service_quotas.handle_request
    for name in ("fsx", "pcs", "servicequotas"):
        iam_actions.SERVICE_TO_IAM_NAMESPACE.setdefault(name, name)
    ssm.install()
    pcs.install()
    pcluster_provider.install()
    eks.install()
    eks_scaling.install()
    eks_versions.install()
    iam_users.install()
    lambda_logs.install()
    log_pages.install()
    cfn.install()


def follow(parent: int) -> None:
    """End when the parent process ends for any reason (SANDBOX_PARENT is its id)."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(os.getpgrp(), signal.SIGTERM)  # with the functions that run; the group is its own


if __name__ == "__main__":
    if "SANDBOX_PARENT" in os.environ:
        threading.Thread(target=follow, args=(int(os.environ["SANDBOX_PARENT"]),), daemon=True).start()
    install()
    app.main()
