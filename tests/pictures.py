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
from rich.console import Console, RenderableType

from tests.jobs.report import boards, browser
from tests.jobs.report.runs import CATALOG, CLUSTER, recorded
from tests.stacks import synthesis
from trainium_cdk.cli import board, screen
from trainium_cdk.cli.view import job_view
from trainium_cdk.cli.web import serve
from trainium_cdk.drawing.markup import svg
from trainium_cdk.jobs.report import Run, board_page, report
from trainium_cdk.jobs.report.live_clusters import Board
from trainium_cdk.operations.graph import mermaid, picture, read

FOLDER = Path(__file__).parent.parent / "docs/pictures"


@cache
def templates() -> Mapping[str, dict[str, Any]]:
    """The stacks of the default environment."""
    return {
        "TrnPclusterStack": synthesis.SLURM.document("default"),
        "TrnEksStack": synthesis.EKS.document("default"),
        "TrnPcsStack": synthesis.PCS.document("default"),
    }


def graphs() -> Iterator[tuple[Path, str]]:
    """Each picture of an architecture: its file, and what it should contain."""
    for name, template in templates().items():
        architecture = read(name, template)
        yield FOLDER / f"{name}.svg", svg(picture(architecture)) + "\n"
        yield FOLDER / f"{name}.mmd", mermaid(architecture)


def page() -> str:
    """The report of two recorded jobs."""
    return report([recorded(1), recorded(2)], CLUSTER, CATALOG, 1_795_510_800, sandbox=True)  # 2026-11-24 09:00 UTC


def watched() -> Run:
    """A recorded job, while it ran."""
    made = recorded(1, steps=240)
    began = made.began(made.status.stages[-1])
    made.now = (began or 0) + 33
    return made


def web() -> str:
    """`trn watch --web` of a recorded job."""
    made = watched()
    return report([made], CLUSTER, CATALOG, made.now, screen.REFRESH, sandbox=True)


def team() -> str:
    """`trn clusters --web` of an account with three clusters."""
    return board_page.page(boards.clusters(), [], boards.NOW, sandbox=True)


SCREENSHOTS: dict[str, tuple[Callable[[], str], int, int]] = {
    "report.png": (page, 1000, 1210),
    "watch-web.png": (web, 1000, 1080),
    "clusters-web.png": (team, 1240, 760),
}
"""Of pages in a browser, with their width and height."""


def terminal() -> str:
    """`trn watch` of a recorded job, as SVG."""
    made = watched()
    shown = job_view(made, answered=made.now, problem="", width=112, metrics=("loss", "throughput"))
    return _as_svg(screen.of_sandbox(shown), "trn watch bert-large-20261124-1", 112, "watch")


def team_terminal() -> str:
    """`trn clusters --watch` of an account with three clusters, as SVG."""
    shown = board.view(Board(boards.clusters(), [], True), board.Cursor(row=4), now=boards.NOW, width=132, height=40)
    return _as_svg(screen.of_sandbox(shown), "trn clusters --watch", 132, "clusters")


def _as_svg(shown: RenderableType, title: str, width: int, name: str) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    console.print(shown)
    # without the fonts that rich would load from the network
    style = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title=title, code_format=style, unique_id=name)


def drawn() -> Iterator[tuple[Path, str]]:
    """Every picture that is text."""
    yield from graphs()
    yield FOLDER / "watch.svg", terminal()
    yield FOLDER / "clusters.svg", team_terminal()


def source_of(picture: Path) -> str:
    """The SHA-256 of the page that a screenshot shows, as written in it."""
    found = re.search(rb"tEXtSource\x00([0-9a-f]{64})", picture.read_bytes())
    assert found, f"{picture} does not say what it shows: make pictures"
    return found[1].decode()


def _screenshot(picture: Path, page: str, width: int, height: int) -> None:
    text = b"tEXt" + b"Source\0" + hashlib.sha256(page.encode()).hexdigest().encode()
    with tempfile.TemporaryDirectory() as folder, serve(lambda _: page) as url:
        browser.screenshot(url, picture, width, height, Path(folder))
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
    for name, (page, width, height) in SCREENSHOTS.items():
        _screenshot(FOLDER / name, page(), width, height)
        print(FOLDER / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
