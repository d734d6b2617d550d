"""The runner's command line: see the package."""

from __future__ import annotations

import sys

COMMANDS = ("ask", "stage", "node", "pod", "prepare", "folder")


def main() -> None:
    command, *words = sys.argv[1:] or [""]
    if command not in COMMANDS:
        sys.exit(f"runner: write one of {', '.join(COMMANDS)}")
    from importlib import import_module

    import_module(f".{command}", __package__).main(*words)


if __name__ == "__main__":
    main()
