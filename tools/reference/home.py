"""The home page: the commands of the README, and the recording with a player for it."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

from sandbox.paths import HOME as ROOT

PLAYER = ROOT / "node_modules/asciinema-player/dist/bundle"
CAST = ROOT / "docs/pictures/first-job.cast"
META = "---\nhide: [navigation, toc]\n---\n\n"
OPTIONS = {"fit": "width", "terminalFontFamily": "monospace", "theme": "asciinema", "controls": True}


def start(readme: str) -> str:
    """The first block of the README with `trn init`, unchanged."""
    blocks = re.findall(r"^```bash\n.*?^```$", readme, re.MULTILINE | re.DOTALL)
    return str(next(block for block in blocks if "\ntrn init" in block))


def recording(assets: Path) -> str:
    """The player with its recording, and the recording's text; writes what they load into the folder of assets.

    Everything is in the folder of the page, and the recording is in a script: a page that is opened as a file may fetch nothing.
    """
    for name in ("asciinema-player.min.js", "asciinema-player.css"):
        shutil.copyfile(PLAYER / name, assets / name)
    cast = CAST.read_text("utf-8")
    shown = json.loads(cast.splitlines()[-1])[0] * 0.55  # before it is played: the job while it runs
    options = OPTIONS | {"poster": f"npt:{shown:.1f}"}
    script = f'AsciinemaPlayer.create({{data: {json.dumps(cast)}}}, document.getElementById("recording"), {json.dumps(options)})\n'
    (assets / "recording.js").write_text(script, "utf-8")
    text = html.escape(CAST.with_suffix(".txt").read_text("utf-8").rstrip("\n"))
    lines = text.replace("\n\n", "\n&#8203;\n")  # an empty line would end the block of HTML
    return (
        '<link rel="stylesheet" href="assets/asciinema-player.css">\n<div id="recording" role="region" aria-label="Recording of a terminal: its text is below"></div>\n'
        '<script src="assets/asciinema-player.min.js"></script>\n<script src="assets/recording.js"></script>\n\n'
        f"<details><summary>The recording as text</summary><pre>{lines}</pre></details>"
    )


def page(text: str, assets: Path) -> str:
    """The page, with the parts from other files in place of its comments."""
    readme = start((ROOT / "README.md").read_text("utf-8"))
    return META + text.replace("<!-- start -->", readme).replace("<!-- recording -->", recording(assets))
