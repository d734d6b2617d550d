"""The runner under the Pythons of nodes, in clean roots. `make test-pythons` runs its other tests there too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bootstrap.roots import RECIPES, missing_parts, newest, root
from tests.support import completed, need, swept

_IMPORT = """
import importlib, pkgutil, sys, runner
names = [m.name for m in pkgutil.walk_packages(runner.__path__, "runner.") if m.name != "runner.__main__"]
for name in names:
    importlib.import_module(name)
print("%d.%d" % sys.version_info[:2], len(names))
"""
NEWEST = "newest"


@pytest.mark.parametrize("system", swept([*RECIPES, NEWEST], "amzn-2023", NEWEST))
def test_every_module_is_imported_without_a_warning(system: str) -> None:
    need(not missing_parts(), missing_parts())
    try:
        clean = newest() if system == NEWEST else root(system)
    except RuntimeError as e:
        need(condition=False, reason=str(e))
        raise
    env = {**os.environ, "CLEAN_ROOT": str(clean.path)}
    words = [Path(__file__).with_name("python_in_root.sh"), "-W", "error", "-B", "-c", _IMPORT]
    done = completed(words, env=env)
    version, modules = done.stdout.split() or ["", "0"]
    assert (version, done.stderr) == (clean.python, "")
    assert int(modules) > 40
