"""`bootstrap/lib/metrics.py`, imported as a module: nodes run it as a program."""

from __future__ import annotations

import importlib.util
from typing import Any

from trainium_cdk.description.node.scripts import scripts_dir

SCRIPT = scripts_dir() / "lib/metrics.py"
_spec = importlib.util.spec_from_file_location("trn_metrics", SCRIPT)
assert _spec
assert _spec.loader
metrics: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(metrics)
