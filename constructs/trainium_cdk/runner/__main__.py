"""The runner's command line: see the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

COMMANDS = {
    "ask": "head.main",
    "step": "work.relay.step",
    "prepare": "prepare.main.main",
    "stage": "work.stage.main",
    "node": "work.node.main",
    "pod": "work.pod.main",
    "ready": "work.container.ready",
    "folder": "work.container.folder",
    "board": "head.programs.become_board",
    "relay": "work.relay.main",
    "events": "work.events.main",
    "keep": "work.keep.main",
}
"""The function of each command, as MODULE.FUNCTION: its arguments are the words after the command."""


_ROLE = "/etc/trn-job-environment"
"""On a node of Slurm, by which variables programs find the role of jobs, and the region: NAME=VALUE, each with a NUL byte at its end."""


def _find_role() -> None:
    """A job may have been submitted where these are not set, or are others."""
    try:
        text = Path(os.environ.get("TRN_JOB_ENVIRONMENT", _ROLE)).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for name, _, value in (entry.partition("=") for entry in text.split("\0") if entry):
        os.environ[name] = value


def main() -> None:
    command, *words = sys.argv[1:] or [""]
    if command not in COMMANDS:
        sys.exit(f"runner: write one of {', '.join(COMMANDS)}")
    from importlib import import_module

    from .errors import place_of

    _find_role()
    try:
        module, _, function = COMMANDS[command].rpartition(".")
        getattr(import_module(f".{module}", __package__), function)(*words)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as e:  # a traceback helps nobody
        print(f"trn: the runner failed, which is a fault of it: {place_of(e)}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
