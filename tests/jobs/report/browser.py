"""A real browser, to look at a page as its reader does."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from tests.support import completed, need

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_MEASURE = """<script>addEventListener("load", () => {
  const page = document.documentElement, told = [page.scrollWidth, page.clientWidth];
  for (const text of document.querySelectorAll("svg text")) {
    const box = text.getBoundingClientRect(), whole = text.closest("svg").getBoundingClientRect();
    if (box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1) told.push(text.textContent);
  }
  parent.document.title = "measured: " + JSON.stringify(told);
})</script>"""


def available() -> None:
    """Skip the test where there is no browser."""
    need(PROGRAM is not None, "no Chromium here: apt-get install chromium")


def _run(folder: Path, *options: str) -> str:
    assert PROGRAM
    command = [
        PROGRAM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ]
    profile = f"--user-data-dir={folder / 'profile'}"
    done = completed([*command, profile, *options], timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def measured(page: str, width: int, folder: Path) -> tuple[int, int, list[str]]:
    """The width of a page's content, that of the window, and the texts of pictures that are cut."""
    own = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)  # it would stop our script too
    own = own.replace("</body>", f"{_MEASURE}</body>")
    # a window is never narrower than 500 pixels, but a frame is
    file = folder / f"{width}.html"
    file.write_text(f'<iframe srcdoc="{html.escape(own)}" width="{width}" height="900"></iframe>', "utf-8")
    found = re.search(
        r"<title>measured: (.*?)</title>", _run(folder, "--virtual-time-budget=5000", "--dump-dom", file.as_uri())
    )
    assert found
    content, window, *cut = json.loads(html.unescape(found[1]))
    return content, window, cut


def screenshot(url: str, picture: Path, width: int, height: int, folder: Path) -> None:
    """A picture of the top of a page."""
    _run(folder, f"--window-size={width},{height}", f"--screenshot={picture}", url)


def text(url: str, folder: Path, *, seconds: int = 0) -> str:
    """A page's elements, after it is loaded, and its programs have run for so long."""
    wait = [f"--virtual-time-budget={1000 * seconds}"] if seconds else []
    return _run(folder, *wait, "--dump-dom", url)


def too_wide(pages: Iterable[Path], width: int, folder: Path, part: str = "html") -> list[str]:
    """Those of the files in which a part is cut at its right edge, in a frame of that width. `part`: a selector; the page by default."""
    frames = "".join(f'<iframe src="{page.as_uri()}" width="{width}" height="900"></iframe>' for page in pages)
    script = f"""<script>addEventListener("load", () => {{ document.title = "measured: " + JSON.stringify(
      [...document.querySelectorAll("iframe")].filter(frame => [...frame.contentDocument.querySelectorAll({json.dumps(part)})].some(
        one => one.scrollWidth > one.clientWidth)).map(frame => frame.src)) }})</script>"""
    file = folder / "frames.html"
    file.write_text(frames + script, "utf-8")
    found = re.search(
        r"<title>measured: (.*?)</title>",
        _run(folder, "--allow-file-access-from-files", "--virtual-time-budget=9000", "--dump-dom", file.as_uri()),
    )
    assert found
    wide: list[str] = json.loads(html.unescape(found[1]))
    return wide
