"""The pictures of docs/pictures: `make pictures` writes them, tests hold them current."""

from __future__ import annotations

import hashlib
import io
import re
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from tests.jobs.report import browser
from tests.jobs.report.runs import CATALOG, CLUSTER, recorded
from tests.stacks import eks_synthesis, synthesis, test_pcs
from trainium_cdk.cli import screen
from trainium_cdk.cli.view import job_view
from trainium_cdk.cli.web import serve
from trainium_cdk.drawing.markup import svg
from trainium_cdk.jobs.report import Run, report
from trainium_cdk.operations.graph import mermaid, picture, read

FOLDER = Path(__file__).parent.parent / "docs/pictures"


@cache
def templates() -> Mapping[str, dict[str, Any]]:
    """The stacks of the default environment."""
    return {
        "TrnPclusterStack": dict(synthesis.template("default").to_json()),
        "TrnEksStack": eks_synthesis.document("default"),
        "TrnPcsStack": dict(test_pcs.template("default").to_json()),
    }


def graphs() -> Iterator[tuple[Path, str]]:
    """Each picture of an architecture: its file, and what it should contain."""
    for name, template in templates().items():
        architecture = read(name, template)
        yield FOLDER / f"{name}.svg", svg(picture(architecture)) + "\n"
        yield FOLDER / f"{name}.mmd", mermaid(architecture)


def page() -> str:
    """The report of two recorded jobs."""
    return report([recorded(1), recorded(2)], CLUSTER, CATALOG, 1_795_510_800)  # 2026-11-24 09:00 UTC


def watched() -> Run:
    """A recorded job, while it ran."""
    made = recorded(1, steps=240)
    began = made.began(made.status.stages[-1])
    made.now = (began or 0) + 33
    return made


def web() -> str:
    """`trn watch --web` of a recorded job."""
    made = watched()
    return report([made], CLUSTER, CATALOG, made.now, screen.REFRESH)


SCREENSHOTS: dict[str, tuple[Callable[[], str], int]] = {"report.png": (page, 1210), "watch-web.png": (web, 1080)}
"""Of pages in a browser, with their height."""


def terminal() -> str:
    """`trn watch` of a recorded job, as SVG."""
    made = watched()
    console = Console(record=True, width=112, file=io.StringIO(), force_terminal=True)
    console.print(job_view(made, answered=made.now, problem="", width=112, metrics=("loss", "throughput")))
    # without the fonts that rich would load from the network
    style = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="trn watch bert-large-20261124-1", code_format=style, unique_id="watch")


def drawn() -> Iterator[tuple[Path, str]]:
    """Every picture that is text."""
    yield from graphs()
    yield FOLDER / "watch.svg", terminal()


def source_of(picture: Path) -> str:
    """The SHA-256 of the page that a screenshot shows, as written in it."""
    found = re.search(rb"tEXtSource\x00([0-9a-f]{64})", picture.read_bytes())
    assert found, f"{picture} does not say what it shows: make pictures"
    return found[1].decode()


def _screenshot(picture: Path, page: str, height: int) -> None:
    text = b"tEXt" + b"Source\0" + hashlib.sha256(page.encode()).hexdigest().encode()
    with tempfile.TemporaryDirectory() as folder, serve(lambda: page) as url:
        browser.screenshot(url, picture, 1000, height, Path(folder))
    data = picture.read_bytes()
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    picture.write_bytes(data[:33] + chunk + data[33:])  # behind the header


def main() -> int:
    """Write them; returns the exit code."""
    FOLDER.mkdir(exist_ok=True)
    for file, text in drawn():
        file.write_text(text, "utf-8")
        print(file)
    if browser.PROGRAM is None:
        print(f"{', '.join(SCREENSHOTS)} stay: there is no Chromium here (apt-get install chromium)")
        return 1
    for name, (page, height) in SCREENSHOTS.items():
        _screenshot(FOLDER / name, page(), height)
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
