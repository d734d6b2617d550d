"""The site: every link leads to a page and a heading, nothing comes from another host, the references are complete."""

from __future__ import annotations

import html
import json
import os
import re
import socket
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

import trainium_cdk
from sandbox.paths import HOME as ROOT
from sandbox.paths import environment as venv
from tests.jobs.report import browser
from tests.support import completed, need
from tools import figures
from tools.reference import environment, errors, home
from tools.reference.__main__ import write
from trainium_cdk.client.cli.app import _HIDDEN, COMMANDS

HERE = Path(__file__).parent
CONFIG = """
INHERIT: {root}/mkdocs.yml
docs_dir: {folder}/pages
site_dir: {folder}/html
plugins: {{mkdocstrings: {{handlers: {{python: {{paths: [{root}/constructs]}}}}}}}}
"""


class Page(HTMLParser):
    """What a page loads or links to, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "srcset", "action", "data", "poster", "content"):
                self.addresses.append(value or "")
            elif name == "class":
                self.classes |= set((value or "").split())
            elif name == "id":
                self.ids.add(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, as `make docs` builds it."""
    program = venv("docs") / "bin/mkdocs"
    need(program.exists(), "the environment of `make docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    write(folder / "pages")
    (folder / "mkdocs.yml").write_text(CONFIG.format(root=ROOT, folder=folder))
    done = completed(
        [program, "build", "--quiet", "--strict", "-f", folder / "mkdocs.yml"],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder / "html"


def test_nothing_of_another_host(site: Path) -> None:
    """No page names one, and nothing on it makes the theme load a program: it does for diagrams of Mermaid, for example."""
    pages = {file: Page(file.read_text("utf-8")) for file in site.rglob("*.html")}
    assert len(pages) > 20
    for file, page in pages.items():
        assert [a for a in page.addresses if re.match(r"(\w+:)?//", a)] == [], file
        assert not page.classes & {"mermaid", "glightbox", "twemoji-external"}, file
    for file in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", file.read_text("utf-8")) == [], file


def test_each_name_has_an_entry(site: Path) -> None:
    """Commands and constructs that are added later are there without a change of the pages."""
    ids = {name: Page((site / f"reference/{name}.html").read_text("utf-8")).ids for name in ("commands", "constructs")}
    assert {f"trn-{name}" for name in COMMANDS.keys() - _HIDDEN.keys()} <= ids["commands"]
    assert {f"trainium_cdk.{name}" for name in trainium_cdk.__all__} <= ids["constructs"]
    assert len(errors.refused()) > 60


def test_each_key_says_what_it_takes() -> None:
    for section in environment.sections():
        for name, key in section.keys.items():
            assert environment.kind(key) not in ("any", ""), (section.title, name)
            assert environment.default(section, name), (section.title, name)
            words = name.split("_")
            if words[-1] in environment.UNITS and "number" in environment.kind(key):
                assert environment.unit(name, key), (section.title, name)


def test_the_home_page_shows_the_readmes_start_and_plays_a_recording(site: Path, tmp_path: Path) -> None:
    """Also opened as a file; and what stands at the end of the recording can be read without the player."""
    text = html.unescape(re.sub(r"<[^>]*>", "", (site / "index.html").read_text("utf-8")))
    start = home.start((ROOT / "README.md").read_text("utf-8")).splitlines()[1:-1]
    assert [line for line in start if line not in text] == []
    assert home.CAST.with_suffix(".txt").read_text("utf-8").splitlines()[-1] in text
    assert len((ROOT / "docs/index.md").read_text("utf-8").split()) <= 250
    browser.available()
    shown = Page(browser.text((site / "index.html").as_uri(), tmp_path, seconds=8))
    assert "ap-player" in shown.classes


def test_the_recording_says_where_it_was_made_and_names_no_machine() -> None:
    """In the sandbox, from the first prompt on."""
    header, *events = map(json.loads, home.CAST.read_text("utf-8").splitlines())
    assert (header["version"], header["width"]) == (2, 80)
    assert [at for at, _, _ in events] == sorted(at for at, _, _ in events)
    assert 15 < events[-1][0] < 60
    for text in ("".join(output for _, _, output in events), home.CAST.with_suffix(".txt").read_text("utf-8")):
        assert "(local AWS)" in text.splitlines()[0]
        assert "sandbox: no real AWS, no real costs or speeds" in text
        assert re.findall(r"/(?:root|tmp|work|home/(?!ubuntu))\b|AKIA|Traceback", text) == []
        assert str(ROOT) not in text
        assert socket.gethostname() not in text


@pytest.mark.parametrize("name", figures.FIGURES)
def test_drawings_are_those_of_the_catalogue_and_the_record(name: str, tmp_path: Path) -> None:
    """As `make pictures` writes them; a phone shows each word of them."""
    drawn = figures.FIGURES[name]()
    assert (ROOT / "docs/pictures" / name).read_text("utf-8") == drawn
    browser.available()
    assert browser.measured(f"<html><body>{drawn}</body></html>", 520, tmp_path)[2] == []


def test_common_questions_lead_to_the_right_page(site: Path) -> None:
    """By the worker, the index and the script that the pages themselves load."""
    wanted: dict[str, str] = yaml.safe_load((HERE / "questions.yaml").read_text("utf-8"))
    done = completed(["node", HERE / "search.js", site], input="\n".join(wanted))
    first = [json.loads(line)[0] for line in done.stdout.splitlines()]
    assert {q: f if "#" in wanted[q] else f.partition("#")[0] for q, f in zip(wanted, first, strict=True)} == wanted


def test_the_search_finds_an_error_in_pages_opened_as_files(site: Path, tmp_path: Path) -> None:
    browser.available()
    page = browser.text(f"{(site / 'index.html').as_uri()}?q=InsufficientInstanceCapacity", tmp_path, seconds=8)
    assert "reference/errors.html?h=insufficientinstancecapacity#" in page


def test_no_page_is_wider_than_a_phone(site: Path, tmp_path: Path) -> None:
    browser.available()
    wide = tmp_path / "wide.html"
    wide.write_text('<div style="width: 400px">wide</div>')
    pages = [file for file in site.rglob("*.html") if file.name != "404.html"]
    assert browser.too_wide([*pages, wide], 360, tmp_path) == [wide.as_uri()]


@pytest.mark.parametrize("width", [390, 1280])
def test_commands_wrap(width: int, site: Path, tmp_path: Path) -> None:
    browser.available()
    wide = tmp_path / "wide.html"
    wide.write_text(f'<div class="language-bash"><pre><code style="display: block">{"word " * 400}</code></pre></div>')
    pages = [file for file in site.rglob("*.html") if "language-bash" in file.read_text("utf-8")]
    assert len(pages) > 20
    assert browser.too_wide([*pages, wide], width, tmp_path, ".language-bash pre > code") == [wide.as_uri()]
