"""The runner's command line: see the package."""

from __future__ import annotations

import sys

COMMANDS = {
    "ask": "head.ask",
    "step": "head.step",
    "prepare": "prepare.main",
    "stage": "work.stage",
    "node": "work.node",
    "pod": "work.pod",
    "folder": "work.folder",
    "board": "work.board",
    "relay": "work.relay",
    "events": "work.events",
}


def main() -> None:
    command, *words = sys.argv[1:] or [""]
    if command not in COMMANDS:
        sys.exit(f"runner: write one of {', '.join(COMMANDS)}")
    from importlib import import_module

    from .errors import place_of

    try:
        import_module(f".{COMMANDS[command]}", __package__).main(*words)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as e:  # a traceback helps nobody
        print(f"trn: the runner failed, which is a fault of it: {place_of(e)}", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
