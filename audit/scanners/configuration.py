"""ParallelCluster's configuration, which other scanners skip because it is one property of a custom resource."""

from __future__ import annotations

import json

from audit.findings import Finding, Subjects
from trainium_cdk.checks.cluster_configuration import faults

NAME = "cluster-configuration"


def cluster_configuration(subjects: Subjects) -> list[Finding]:
    """Public access, broad permissions and missing encryption in the merged configuration; errors and warnings."""
    found = []
    for subject, path in subjects.templates.items():
        for resource, body in json.loads(path.read_text("utf-8"))["Resources"].items():
            config = body.get("Properties", {}).get("ClusterConfiguration")
            if isinstance(config, dict):
                for fault in faults(config):
                    rule = ".".join(str(step) for step in fault.key if isinstance(step, str))
                    found.append(Finding(NAME, rule, subject, resource, f"{fault.value!r}: {fault.reason}"))
    return found
