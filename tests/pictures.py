"""`make pictures` writes what the docs show: the stacks as flowcharts, drawings, and the report in a browser."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.jobs.report import browser
from tests.jobs.report.runs import CATALOG, TRN2, fine_tuned
from tests.stacks import synthesis
from tools.figures import FIGURES
from tools.reference.graph import mermaid, read
from trainium_cdk.client.jobs.report import report

DOCS = Path(__file__).parent.parent / "docs"
STACKS = {"TrnPclusterStack": synthesis.SLURM, "TrnEksStack": synthesis.EKS, "TrnPcsStack": synthesis.PCS}


def page() -> str:
    """The report of a recorded fine-tuning."""
    return report([fine_tuned()], TRN2, CATALOG, 1_795_957_200, sandbox=True)  # 2026-11-29 13:00 UTC


def main() -> int:
    """Write them; returns the exit code."""
    file = DOCS.parent / "internals/architecture.md"
    text = file.read_text("utf-8")
    for name, stack in STACKS.items():
        block = f"## {name}\n\n```mermaid\n{mermaid(read(stack.document('default')))}```"
        text = re.sub(rf"## {name}\n\n```mermaid\n.*?```", lambda _, block=block: block, text, flags=re.DOTALL)
    file.write_text(text, "utf-8")
    for name, draw in FIGURES.items():
        (DOCS / "pictures" / name).write_text(draw(), "utf-8")
    if browser.PROGRAM is None:
        print("the picture of the report stays: there is no Chromium here (apt-get install chromium)")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(page(), "utf-8")
        browser.screenshot(file.as_uri(), DOCS / "pictures/report.png", 1000, 915, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
