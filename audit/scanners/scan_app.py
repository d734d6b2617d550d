"""checkov's failed checks, as JSON. Runs in the scanners' environment: `scan_app.py [framework=folder]...`

Only the runners of the frameworks named are loaded, and in one process: its command line imports every runner it has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from checkov.cloudformation.runner import Runner as CloudFormation
from checkov.kubernetes.runner import Runner as Kubernetes
from checkov.runner_filter import RunnerFilter

RUNNERS = {"cloudformation": CloudFormation, "kubernetes": Kubernetes}
found, unread = {}, []
for argument in sys.argv[1:]:
    framework, _, folder = argument.partition("=")
    report = RUNNERS[framework]().run(root_folder=folder, runner_filter=RunnerFilter(framework=[framework]))
    unread += report.parsing_errors
    found[framework] = [
        {
            "rule": check.check_id,
            "file": Path(check.file_path).name,
            "resource": check.resource,
            "name": check.check_name,
        }
        for check in report.failed_checks
    ]
json.dump({"found": found, "unread": unread}, sys.stdout)
