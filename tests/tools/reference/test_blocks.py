"""Every code block of the pages: commands go through the real parsers, those that need no AWS run in one folder, YAML is loaded and
checked, Python runs and is synthesised. tests/cli/test_submit.py renders each printed submission, test_forms.py runs those on jobs on a Slurm; tests/sandbox/test_pages.py,
test_on_aws.py and test_quick_start.py run whole pages in the sandbox."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
import jsonschema
import pytest
import typer
import yaml
from botocore import xform_name

from sandbox.paths import HOME as ROOT
from tests import command
from tests.sandbox import on_aws
from tests.support import completed
from trainium_cdk import settings
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.cli.job_file import json_schema
from trainium_cdk.description import checks

PAGES = [
    ROOT / "README.md",
    ROOT / "PACKAGE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "internals").glob("*.md")),
    ROOT / "sandbox/README.md",
    ROOT / "sandbox/STAND-INS.md",
]
TUTORIALS = ROOT / "docs/start/tutorials.md"
LANGUAGES = {"bash", "json", "mermaid", "python", "yaml", "toml", "text"}
OF_THE_SHELL = {"curl", "source", "export", "eval", "mkdir", "printf", "echo", "tensorboard", "pip", "sudo", "ls", "torchx", "uv", "uvx", "exit"}  # fmt: skip
"""Programs that are not ours, or that are there where the page says so."""
WITHOUT_AWS = ("cost", "check --offline", "submit --list", "show schema")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for block in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            lines = [line.removeprefix(block[1]) for line in block[3].splitlines()]
            found.append(
                Block(str(page.relative_to(ROOT)), text[: block.start()].count("\n") + 1, block[2], "\n".join(lines))
            )
    return found


def commands() -> list[tuple[Block, list[str]]]:
    """Each command of each block, as words; what follows `#` is a comment."""
    found = []
    for block in blocks():
        for line in block.text.replace("\\\n", " ").splitlines() if block.language == "bash" else ():
            lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
            lexer.whitespace_split = True
            words: list[str] = []
            for word in [*lexer, ";"]:
                if word and set(word) <= set(";&|"):
                    found += [(block, words)] if words else []
                    words = []
                else:
                    words.append(word)
    return found


def job_files() -> dict[str, str]:
    """The jobs among the YAML blocks, by the name of their file, which is their first line: `# job.yaml`."""
    jobs = [b for b in blocks() if b.language == "yaml" and "job" in yaml.safe_load(b.text)]
    return {block.text.partition("\n")[0].removeprefix("# "): block.text for block in jobs}


def test_each_block_says_what_it_is() -> None:
    assert [b for b in blocks() if b.language not in LANGUAGES] == []
    assert len(commands()) > 70


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the commands name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    (tmp_path / "my-project").mkdir()
    for name in ("train.py", "my-project/train.py", "my-script.py"):
        (tmp_path / name).write_text("1\n")
    for name in ("environment.yaml", "east.yaml"):
        (tmp_path / name).write_text(on_aws.example())
    for name, text in job_files().items():
        (tmp_path / name).write_text(text)
    for name in ("examples", "tests", "app.py", "cdk.json", "stacks", "Makefile"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def _trn(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="trn")
    while hasattr(command, "resolve_command"):
        if words[0] in ("--version", "--install-completion"):
            return
        name, command, words = command.resolve_command(context, words)
        assert command, f"trn has no command {name}"
        if hasattr(command, "resolve_command"):
            context = typer.Context(command, info_name=name, parent=context)
            if name == "nodes" and (not words or words[0].startswith("-")):
                words = ["list", *words]
    command.make_context(name, list(words), parent=context)


@functools.cache
def _help(*words: str) -> str:
    done = completed([*words, "--help"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _options_exist(words: list[str], known: str) -> None:
    for word in words:
        if word == "--":
            break
        assert not word.startswith("-") or word.partition("=")[0] in known, word


def _aws(service: str, operation: str, *words: str) -> None:
    model = botocore.session.get_session().get_service_model(service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    known = {xform_name(name, "-") for name in model.operation_model(names[operation]).input_shape.members}
    assert {w.removeprefix("--") for w in words if w.startswith("--")} <= known | {"region", "query", "output"}


@pytest.mark.parametrize(
    ("block", "words"), [pytest.param(b, w, id=f"{b.page}:{b.line}:{' '.join(w)[:40]}") for b, w in commands()]
)
def test_each_command_is_one(block: Block, words: list[str], folder: Path) -> None:
    """It is parsed by its own program's parser, or of another's, its options are in that program's help."""
    while "=" in words[0]:
        words = words[1:]
    match words:
        case ["trn", *rest]:
            _trn(rest[: rest.index(">")] if ">" in rest else rest)
        case ["make", *targets]:
            text = (ROOT / "Makefile").read_text("utf-8")
            assert all(re.search(rf"^{t}:", text, re.MULTILINE) for t in targets if "=" not in t)
        case ["cdk", verb, *rest]:
            _options_exist(rest, _help(str(ROOT / "node_modules/.bin/cdk"), verb))
        case ["python", "-m", "sandbox", verb, *rest]:
            _options_exist(rest, _help(sys.executable, "-m", "sandbox", verb))
        case ["python", "-m", "pytest", *rest]:
            assert all((ROOT / word.partition("::")[0]).exists() for word in rest if "/" in word)
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module.partition(".")[0])
        case ["aws", service, operation, *rest] if operation != "...":
            _aws(service, operation, *rest)
        case [script, *_] if script.startswith("examples/"):
            assert os.access(ROOT / script, os.X_OK)
        case _:
            assert words[0] in OF_THE_SHELL


@pytest.mark.parametrize("engine", ["slurm", "kubernetes"])
def test_what_the_tutorials_submit_is_accepted(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the environment that the page's own first command for that engine names or writes; also what stands in its tables."""
    monkeypatch.chdir(tmp_path)
    slurm, eks = TUTORIALS.read_text("utf-8").split("## BERT-Large on EKS")
    part = slurm if engine == "slurm" else eks
    lines = re.findall(r"^(trn [^#\n]*)|`(trn [^`\n]*)`", part, re.MULTILINE)
    words = [shlex.split("".join(line)) for line in lines]
    if engine == "slurm":
        [file] = [str(ROOT / line[2]) for line in words if line[1] == "use"]
    else:
        [init] = [line for line in words if line[1] == "init"]
        app(init[1:], standalone_mode=False)
        file = init[2]
    submitted = [line for line in words if line[1] == "submit"]
    assert submitted
    for line in submitted:
        options = " ".join(line[1:]).replace(" --follow", "").replace(" --dry-run", "")
        assert app([*options.split(), "--dry-run", "--environment", file], standalone_mode=False) in (None, 0)
    for line in words:
        _trn(line[1:])


def _heading_ids(page: Path) -> set[str]:
    """As GitHub makes them, which keeps each of two dashes; MkDocs makes one of them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere_on_github(page: Path) -> None:
    """MkDocs checks them in the site. `reference` is there only."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text("utf-8"))
    for name, heading in links:
        target = page.parent / name if name else page
        if not name.removeprefix("../").startswith("reference/"):
            assert target.exists(), name
            assert not heading or heading in _heading_ids(target), f"{name}#{heading}"


def test_what_needs_no_aws_runs(folder: Path) -> None:
    """All of these in one folder, as they are printed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "TRN_"))}
    path = f"{Path(sys.executable).parent}:{ROOT / 'node_modules/.bin'}:{env['PATH']}"
    ran = 0
    for block, words in commands():
        if (
            words[0] != "trn"
            or not " ".join(words[1:]).startswith(WITHOUT_AWS)
            or "Mine.template.json" in " ".join(words)
        ):
            continue
        words = words[: words.index(">")] if ">" in words else words
        done = command.trn(words[1:], {**env, "PATH": path, "AWS_EC2_METADATA_DISABLED": "true"}, folder)
        assert done.returncode == 0, (block.page, words, done.stderr)
        assert done.stdout or done.stderr
        ran += 1
    assert ran >= 4


@pytest.mark.parametrize("block", [pytest.param(b, id=f"{b.page}:{b.line}") for b in blocks() if b.language == "yaml"])
def test_each_environment_and_job_is_valid(block: Block, folder: Path) -> None:
    """`trn check` has no error in an environment, and a dry run none in a job; each is a mapping that names something."""
    data = yaml.safe_load(block.text)
    assert data
    if "job" not in data:
        checks.require(settings.parse(block.text, block.page))
        return
    jsonschema.validate(data, json_schema())
    Path("my-project/requirements.txt").write_text("einops\n")
    Path("my-project/job.yaml").write_text(block.text)
    words = ["submit", "my-project/job.yaml", "--dry-run", "--environment", "environment.yaml"]
    assert app(words, standalone_mode=False) in (None, 0)


@pytest.mark.parametrize(
    "block", [pytest.param(b, id=f"{b.page}:{b.line}") for b in blocks() if b.language in ("json", "python", "toml")]
)
def test_each_program_runs(block: Block) -> None:
    """As it is printed: nothing is defined for it. An app is synthesised, and has nodes."""
    if block.language in ("json", "toml"):
        assert {"json": json.loads, "toml": tomllib.loads}[block.language](block.text)
        return
    given: dict[str, Any] = {}
    exec(compile(block.text, f"{block.page}:{block.line}", "exec", dont_inherit=True), given)  # noqa: S102
    if "app" in given:
        [stack] = given["app"].synth().stacks
        assert "AWS::EKS::Nodegroup" in [resource["Type"] for resource in stack.template["Resources"].values()]
    if "RULES" in given:
        [problem] = [p for rule in given["RULES"] for p in rule(settings.Environment(name="test"))]
        assert problem.dotted == "name"
    if "Hello" in given:
        assert given["Hello"](nodes=1).program(None).words[:2] == ("echo", "hi")
