"""`--requirements`: what a cluster cannot have is refused before anything is sent; the rest is installed for real, by pip, on both engines, and
by a real Slurm. What pip fetches is of this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox import head_node
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from tests.jobs.vendor import Site
from trainium_cdk.client.cli import app
from trainium_cdk.client.jobs import workdir
from trainium_cdk.client.jobs.packages import offer_own
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.jobs import JobError, Script, SlurmBackend

ENGINES = ["slurm"]
TOKEN = "t0ken-of-mine"
XLA, NATIVE = make_cluster(), make_cluster(
    fleet("trn2.48xlarge"), neuron_release="2.33.0", neuron_driver="2.31.7.0", framework="torch-native"
)  # fmt: skip
OWN_IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/own:1"


EINOPS = b"import einops\nprint('einops', einops.V)\n"


def script(*lines: str, **fields: Any) -> Script:
    return Script(filename="t.py", content=EINOPS, requirements=lines, **fields)


def test_a_cluster_without_an_environment_is_refused() -> None:
    with pytest.raises(JobError, match="installs no packages"):
        plan(script("einops"), make_cluster(framework="none"))


@pytest.mark.parametrize(
    ("lines", "fields", "message"),
    [
        (("-i https://me:${TOKEN}@h.org/simple", "einops"), {}, "requirements needs the variable TOKEN. Give it to the job: --env TOKEN"),
        (("einops", "."), {}, "requirements names ., which is not sent. Give the folder of your code"),
        (("-f wheels", "einops"), {}, "--workdir DIR"),
        ((), {}, "requirements names no package"),
    ],
)  # fmt: skip
def test_what_a_job_does_not_send_is_refused(lines: tuple[str, ...], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError) as raised:
        script(*lines, **fields)
    assert message in str(raised.value)


def folder(root: Path, **files: str) -> Path:
    root.mkdir(exist_ok=True)
    (root / "t.py").write_text("import einops\nprint('einops', einops.V)\n")
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text)
    return root


def test_paths_are_those_of_the_workdir(tmp_path: Path) -> None:
    code = folder(tmp_path / "code", requirements__txt="./own-1.0-py3-none-any.whl\n", _trnignore="*.whl")
    (code / "_trnignore").rename(code / ".trnignore")
    (code / "own-1.0-py3-none-any.whl").write_text("")
    with pytest.raises(JobError, match=r"names own-1.0-py3-none-any.whl, which is not sent.*\.trnignore"):
        Script.from_workdir(code, "t.py", requirements=code / "requirements.txt")
    (code / ".trnignore").unlink()
    job = Script.from_workdir(code, "t.py", requirements=code / "requirements.txt")
    assert "./own-1.0-py3-none-any.whl" in asked_of_pip(job)["lines"]


def asked_of_pip(job: Script) -> Mapping[str, Any]:
    """The arguments of the step that makes the environment."""
    from trainium_cdk.client.jobs.job_spec import render

    [found] = [step.with_ for step in render(job, XLA, "t").spec.prepare if step.do == "requirements"]
    return found


def test_the_name_is_that_of_the_content(tmp_path: Path) -> None:
    """Of the lines, of what they include, and of the files that they name; of nothing else."""

    def name(requirements: str, own: str = "1", other: str = "1") -> str:
        code = folder(tmp_path / "code", requirements__txt=requirements, limits__txt="numpy<2", other__py=other)
        (code / "own-1.0.zip").write_text(own)
        job = Script.from_workdir(code, "t.py", requirements=code / "requirements.txt")
        asked = asked_of_pip(job)
        return json.dumps([asked[part] for part in ("lines", "constraints", "files")])

    same = [
        name("einops\n./own-1.0.zip"),
        name("# one\neinops \n\n./own-1.0.zip\n"),
        name("einops\n./own-1.0.zip", other="2"),
    ]
    assert len(set(same)) == 1
    others = [
        name("einops"),
        name("einops<1\n./own-1.0.zip"),
        name("einops\n./own-1.0.zip", own="2"),
        name("einops\n-c limits.txt"),
    ]
    assert len({same[0], *others}) == 5


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ({"requirements__txt": "einops"}, "the packages of requirements.txt are not installed. To install them, submit with --requirements {}/requirements.txt"),
        ({"uv__lock": "", "pyproject__toml": ""}, "the packages of uv.lock are not installed. To install them, submit with --requirements {}/uv.lock"),
        ({"pyproject__toml": '[project]\nname = "x"\ndependencies = ["einops"]\n'}, "submit with --requirements {}/pyproject.toml"),
        ({"pyproject__toml": "[tool.ruff]\n"}, ""),
        ({"pyproject__toml": "no TOML"}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_workdir_that_names_packages_is_offered_the_option(
    files: dict[str, str], advice: str, tmp_path: Path
) -> None:
    code = folder(tmp_path / "my code", **files)
    said = offer_own(workdir.read(code))
    assert bool(said) == bool(advice)
    assert advice.format(f"'{code}") in said.replace("requirements.txt'", "requirements.txt").replace(
        f"'{code}'", f"'{code}"
    )


@pytest.mark.parametrize("words", [[], ["--requirements", "requirements.txt"]])
def test_the_command(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder(tmp_path / "code", requirements__txt="einops==0.8.1\n"))
    (tmp_path / "cluster.json").write_text(XLA.model_dump_json())
    at = ["--cluster", str(tmp_path / "cluster.json"), "--local"]
    app.app(["submit", "t.py", "--workdir", ".", *words, *at, "--dry-run"], standalone_mode=False)
    out, err = capfd.readouterr()
    assert ("einops==0.8.1" in out) == bool(words)
    assert ("submit with --requirements" in err) != bool(words)


def add(wheels: Path) -> None:
    """Small packages: of one's own, and one that wants another PyTorch."""
    head_node.wheel(wheels, "einops", "0.8.1", {"einops.py": "V = 1\n"})
    head_node.wheel(wheels, "torch", "2.14.1", {"torch.py": ""})
    head_node.wheel(wheels, "wants-new", "1.0", {}, ["torch==2.14.1"])


LOCK = """version = 1
revision = 3
requires-python = ">=3.10"

[[package]]
name = "own"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "einops" }}]

[package.metadata]
requires-dist = [{{ name = "einops" }}]

[[package]]
name = "einops"
version = "0.8.1"
source = {{ registry = "https://pypi.org/simple" }}
wheels = [{{ url = "https://h.org/einops-0.8.1-py3-none-any.whl", hash = "sha256:{}" }}]
"""


def test_jobs_of_a_real_slurm(backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path) -> None:
    wheels, home = Path(slurm.node_env()["PIP_FIND_LINKS"]), Path(slurm.node_env()["HOME"])
    head_node.wheel(wheels, "torch", "2.9.0", {"torch.py": ""})
    with zipfile.ZipFile(wheels / "torch-2.9.0-py3-none-any.whl") as wheel:
        wheel.extractall(Site.packages(home / head_node.VENV))
    add(wheels)

    def run(job: Script, token: str) -> tuple[bool, str, str]:
        sent = backend.submit(job, token)
        done = backend.wait(sent.id, timeout=300)
        stage = "prepare" if "prepare" in sent.stages else None
        texts = [
            b"".join(c.data for c in backend.logs(sent.id, stage=s)).decode()
            for s in ("train", stage)
            if s and (done.ok or s == stage)
        ]
        return done.ok, "\n".join(texts), ",".join(sent.stages)

    ok, text, stages = run(script("einops==0.8.1", 'absent; sys_platform == "win32"', nodes=2), "a")
    assert ok, text
    assert (text.count("einops 1"), stages) == (2, "prepare,train")
    ok, text, stages = run(script("einops==0.8.1", 'absent; sys_platform == "win32"'), "b")
    assert (ok, text.count("einops 1"), stages) == (True, 1, "train"), text  # it is there
    trn = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs/trn"
    named = environment(trn, "t-b")
    assert environment(trn, "t-a") == named
    record = json.loads((named / "trn-environment.json").read_text())
    assert record["requirements"] == ["einops==0.8.1", 'absent; sys_platform == "win32"']
    ok, text, _ = run(script("wants-new"), "c")
    assert not ok
    assert "trn: wants-new 1.0 wants torch==2.14.1, and torch " in text
    state = Path(slurm.node_env()["TRN_SHARED_ROOT"] + backend.status("t-c").directory) / "state"
    # what pip refuses costs no Trainium node
    assert {file.name.partition(".")[0] for file in state.glob("*.begun")} == {"prepare"}
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "own"\nversion = "1"\ndependencies = ["einops"]\n')
    digest = hashlib.sha256((wheels / "einops-0.8.1-py3-none-any.whl").read_bytes()).hexdigest()
    for number, (found, works) in enumerate([("0" * 64, False), (digest, True)]):
        (tmp_path / "uv.lock").write_text(LOCK.format(found))
        ok, text, _ = run(Script(filename="t.py", content=EINOPS, requirements=tmp_path / "uv.lock"), f"uv-{number}")
        assert (ok, "einops 1" in text) == (works, works), text
    locked = environment(trn, "t-uv-1")
    # after 30 days `prepare` removes what no job has used, but not what a job that waits is to use
    sleeps = backend.submit(Script(filename="sleep.sh", content=b"#!/bin/bash\nsleep 600\n"), "sleeps")
    waits = backend.submit(script("einops==0.8.1", 'absent; sys_platform == "win32"', after=sleeps.id), "waits")
    for used in (*trn.glob("environments/*/trn-environment.json"), *trn.glob("jobs/*/logs/*")):
        os.utime(used, (time.time() - 31 * 86_400,) * 2)
    ok, text, stages = run(script("einops==0.8.1", 'absent; sys_platform == "darwin"'), "d")
    assert (ok, stages) == (True, "prepare,train"), text
    assert re.findall(r"removed the packages (\w+) \(\d+ MB\), which no job has used for 30 days", text) == [
        locked.name
    ]
    assert sorted(link.name for link in (trn / "environments").iterdir() if link.is_symlink()) == sorted(
        {named.name, environment(trn, "t-d").name}
    )
    assert not list(trn.glob(f"environments/.{locked.name}.*"))
    for id in (waits.id, sleeps.id):
        backend.cancel(id)


def environment(trn: Path, job: str) -> Path:
    """The environment that a job uses."""
    return trn / "environments" / (trn / "jobs" / job / "environment").read_text().strip()
