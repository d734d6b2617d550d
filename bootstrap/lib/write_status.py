"""Writes the status file of a run: JSON, replaced atomically so that a reader never sees a partial file."""

import json
import os
import sys
import time
from pathlib import Path

work, target = Path(sys.argv[1]), Path(sys.argv[2])
environ = os.environ
steps = [line.split("\t") for line in (work / "steps").read_text().splitlines()]
status = {
    "result": environ["RESULT"],  # running | ok | failed
    "role": environ["ROLE"],
    "neuron_sdk": environ["SDK"],
    "started": environ["STARTED"],
    "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    "arguments": environ["ARGUMENTS"],
    "steps": [{"name": n, "result": r, "seconds": int(s)} for n, r, s in steps],
    "changes": (work / "changes").read_text().splitlines(),
    "failed_step": environ["FAILED_STEP"],
    "message": environ["MESSAGE"],
    "log": environ["LOG"],
}
staged = target.with_suffix(".new")
staged.write_text(json.dumps(status, indent=2) + "\n")
staged.replace(target)
