"""The readers of logs can run on a cluster's nodes: Python 3.9, the standard library alone, nothing of the package outside their folder."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

from tests.support import ROOT, completed

FOLDER = ROOT / "constructs/trainium_cdk/runner/readers"


def test_they_need_only_their_folder(tmp_path: Path) -> None:
    """-I: neither this repository nor what is installed beside it."""
    shutil.copytree(FOLDER, tmp_path / "alone", ignore=shutil.ignore_patterns("__pycache__"))
    code = f"""
import sys
sys.path[:] = [one for one in sys.path if "site-packages" not in one] + [{str(tmp_path)!r}]
from alone.ending import ErrorPattern, why_it_ended
from alone.collecting import Collector
from alone.log import JobLog, Lines
log = JobLog(Lines())
assert log.feed("train", b"step 1 loss 2.5\\n")[0][1].loss == 2.5
collector = Collector()
collector.feed(b"no room")
assert why_it_ended(collector.close(), 1, 1, [ErrorPattern("full", "no room", "A disk is full", "delete")]).startswith("A disk is full. Delete")
others = {{name.partition(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names) - {{"alone", "__main__"}}
print(sorted(one for one in others if not one.startswith("_")))
"""
    done = completed([sys.executable, "-I", "-S", "-c", code], check=True)
    assert done.stdout == "[]\n"


def test_they_are_python_3_9() -> None:
    """Their syntax; ruff's `per-file-target-version` has the rest."""
    for file in FOLDER.glob("*.py"):
        tree = ast.parse(file.read_text("utf-8"), feature_version=(3, 9))
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match)], file
        assert any(isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in tree.body) or not [
            one for one in tree.body if not isinstance(one, ast.Expr)
        ], file
