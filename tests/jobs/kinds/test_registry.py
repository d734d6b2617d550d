"""Kinds are found in their folder and in other packages, and the command line shows each with its own options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.conftest import make_cluster
from tests.support import completed
from trainium_cdk.client.jobs import kinds as registry
from trainium_cdk.client.jobs.kinds import by_name, find, kinds, name_of, submittable
from trainium_cdk.errors import JobError

MODULE = """
from typing import Literal
from pydantic import Field
from trainium_cdk.jobs import Job, Upstream
from trainium_cdk.runner.readers import Step
from trainium_cdk.runner.spec import Place, Program

def read(text):
    if text.startswith("hello "):
        yield 0, Step(int(text[6:]))

class Hello(Job):
    TITLE = "greets"
    FRAMEWORKS = ()
    FAMILIES = ("trn1",)
    UPSTREAM = Upstream("someone/hello", "0" * 40, "hello.py")
    LOGS = (read,)
    kind: Literal["hello"] = "hello"
    precompile: bool = False
    greeting: str = Field("hi", pattern=r"^[a-z]+$", description="What it prints.")

    def program(self, plan):
        return Program(("echo", self.greeting, (Place("node"),)), (Place("job"), "/work"))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package of a user's own, installed in a folder of packages; and a cluster's description beside it."""
    (tmp_path / "hello_kind.py").write_text(MODULE)
    info = tmp_path / "hello_kind-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hello-kind\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[trainium_cdk.job_kinds]\nhello = hello_kind:Hello\n")
    (tmp_path / "cluster.json").write_text(make_cluster().model_dump_json())
    return tmp_path


def trn(packages: Path | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = [str(packages)] if packages else []
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]), "COLUMNS": "200"}
    command = [sys.executable, "-c", "from trainium_cdk.client.cli.__main__ import main; main()", *arguments]
    return completed(command, env=env)


def test_a_kind_of_another_package_is_like_ours(package: Path) -> None:
    cluster = ["--cluster", str(package / "cluster.json")]
    shown = trn(
        package, "submit", "hello", "--greeting", "salut", "--nodes", "2", "--token", "t", "--dry-run", *cluster
    )
    [stage] = json.loads(shown.stdout)["job"]["stages"]
    assert stage["program"]["words"] == ["echo", "salut", [{"place": "node"}]], shown.stderr
    assert "--job-name=hello-t:train" in shown.stdout
    refused = trn(package, "submit", "hello", "--greeting", "SALUT", "--dry-run", *cluster)
    assert (refused.returncode, "greeting is 'SALUT'" in refused.stderr) == (1, True), refused.stderr
    [listed] = [k for k in json.loads(trn(package, "submit", "--list", "--json").stdout) if k["kind"] == "hello"]
    assert (listed["families"], listed["options"]["greeting"]) == (["trn1"], "What it prints. Default: hi.")
    assert "What it prints. Default: hi." in trn(package, "submit", "hello", "--help").stdout
    code = "from trainium_cdk.jobs import parse_line; print(list(parse_line(b'hello 7'))[0].step)"
    env = {**os.environ, "PYTHONPATH": f"{package}:{os.environ.get('PYTHONPATH', '')}"}
    assert completed([sys.executable, "-c", code], env=env, check=True).stdout == "7\n"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("raise ImportError('no torch')", "job kind hello (hello_kind:Hello) cannot be loaded: no torch. Fix or uninstall its package"),
        ("class Hello: pass", "job kind hello (hello_kind:Hello) is not a subclass of trainium_cdk.jobs.Job"),
        (MODULE.replace("def program", "def programs"), "job kind hello (hello_kind:Hello) does not define the method program. Fix its package"),
        (MODULE.replace('"hello"', '"bert-large"'), "job kind bert-large (hello_kind:Hello) already exists"),
    ],
)  # fmt: skip
def test_a_package_with_an_invalid_kind(package: Path, module: str, message: str) -> None:
    (package / "hello_kind.py").write_text(module)
    done = trn(package, "submit", "--list")
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_the_command_line_shows_every_kind_and_option() -> None:
    listed = json.loads(trn(None, "submit", "--list", "--json").stdout)
    assert sorted(k["kind"] for k in listed) == sorted(kinds())
    assert [k["recommended_for"] != [] for k in listed] == sorted(
        (k["recommended_for"] != [] for k in listed), reverse=True
    )
    assert [k for k in listed if not k["title"] or not k["upstream"]] == []
    for kind in listed:
        shown = trn(None, "submit", kind["kind"], "--help").stdout
        for option, description in kind["options"].items():
            assert f"--{option.replace('_', '-')}" in shown, option
            assert description or option in ("env",), f"{kind['kind']}: {option}"
        assert "--no-precompile" in shown, "a switch for every kind"
    assert set(submittable()) == set(kinds()) - {"script"}


def test_the_help_of_restarts_is_true_for_each_kind() -> None:
    """On Kubernetes, a kind without checkpoints fails for good when its program fails."""
    listed = json.loads(trn(None, "submit", "--list", "--json").stdout)
    resumes = {kind["kind"]: kind["options"]["restarts"].endswith(" This kind resumes.") for kind in listed}
    assert resumes == {name: kind.RESTARTS for name, kind in kinds().items()}
    assert {name for name, does in resumes.items() if not does} == {"nccom", "script"}
    for name, does in resumes.items():
        shown = " ".join(trn(None, "submit", name, "--help").stdout.split())
        assert ("This kind resumes." in shown) == does


def test_the_tables_of_kinds_name_what_their_modules_have() -> None:
    """Each module of the folder is named once, and so is each former kind."""
    folder = Path(registry.__file__).parent
    assert set(registry.BUILT_IN.values()) == {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert [name_of(kind) for kind in map(find, registry.BUILT_IN) if kind] == list(registry.BUILT_IN)
    former = {name: name_of(kind) for kind in kinds().values() for name in kind.REPLACES}
    assert dict(registry.FORMER) == dict(sorted(former.items()))
    for name, heir in former.items():
        with pytest.raises(JobError, match=rf"^{name} cannot run: .* Use {heir} \("):
            by_name(name)
