"""What the scanners of `tools/audit/run.sh` read."""

import os as _os
import sys as _sys
from pathlib import Path as _Path

# The CDK starts the first `node` on the PATH; the one in this Python's own environment is a version it supports.
_os.environ.setdefault("JSII_NODE", str(_Path(_sys.executable).with_name("node")))
