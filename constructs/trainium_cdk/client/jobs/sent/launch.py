#!/usr/bin/env python3
"""Runs a training script with corrections: `launch.py NAME,NAME SCRIPT ARGUMENTS`. To the script, nothing else is different."""

import importlib
import runpy
import sys
from pathlib import Path


def main() -> None:
    """Each correction is a module beside this file with a function `apply`, which finds the script's own modules."""
    names, script, *arguments = sys.argv[1:]
    corrections = [importlib.import_module(name) for name in names.split(",")]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    for correction in corrections:
        correction.apply()
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
