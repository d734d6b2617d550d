"""A user's requirements, installed for real by pip. What pip fetches is of this machine."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import head_node
from tests.jobs.vendor import REPOSITORIES, Site
from tests.runner.preparing import Cluster
from tests.runner.test_packages import on
from tests.support import completed, swept
from trainium_cdk.client.jobs import fetching
from trainium_cdk.description.requirements import Requirements, read
from trainium_cdk.jobs import Script
from trainium_cdk.runner.prepare import activate
from trainium_cdk.runner.prepare.packages import explain, secrets
from trainium_cdk.runner.spec import PrepareStep

ENGINES = ["slurm", "eks"]
TOKEN = "t0ken-of-mine"
SECOND = {"einops.py": "V = 2\n"}


def steps(given: Requirements, engine: str = "slurm", workdir: Any = None) -> tuple[PrepareStep, ...]:
    return fetching.requirements(given, workdir, on(engine), None)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """With small packages: of one's own, and those that want another PyTorch."""
    made = Site.make(tmp_path)
    wheels = made.root / "wheels"
    head_node.wheel(wheels, "einops", "0.8.1", {"einops.py": "V = 1\n"})
    head_node.wheel(wheels, "einops", "0.9.0", SECOND)
    head_node.wheel(wheels, "torch", "2.14.1", {"torch.py": ""})
    head_node.wheel(wheels, "wants-new", "1.0", {}, ["torch==2.14.1"])
    head_node.wheel(wheels, "wants-any", "1.0", {}, ["torch", "einops"])
    head_node.wheel(wheels, "old-nxd", "1.0", {}, ["neuronx-distributed<0.17"])
    head_node.wheel(wheels, "neuronx-distributed", "0.16.0", {})
    return made


def tree(root: Path, name: str) -> Path:
    """A git repository with a package that pip builds without the network."""
    files = REPOSITORIES["aws-neuron/torchtitan-neuron"]
    place = root / "repositories" / name
    place.mkdir(parents=True)
    (place / "pyproject.toml").write_text(files["pyproject.toml"])
    (place / "backend.py").write_text(files["backend.py"].replace("torchtitan", name))
    return place


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_pip_installs_what_a_file_names(engine: str, site: Site) -> None:
    cluster = Cluster.of(site, engine)
    head_node.make_repository(tree(site.root, "ours"))
    digest = hashlib.sha256((site.root / "wheels/einops-0.8.1-py3-none-any.whl").read_bytes()).hexdigest()
    file = site.root / "requirements.txt"
    (site.root / "limits.txt").write_text("einops<0.9\nabsent==1\n")
    lines = [
        "-c limits.txt", "wants-any  # and with it einops, below 0.9", 'absent; sys_platform == "darwin"', "torch>=2.1",
        f"git+file://{site.root}/repositories/ours@{head_node.REF}#egg=ours",
    ]  # fmt: skip
    file.write_text("\n".join(lines))
    folder = cluster.write(steps(read(file), engine))
    code, output = cluster.prepare(folder)
    assert code == 0, output
    place = cluster.environment(folder)
    there = site.versions(place)
    assert there.items() >= {"einops": "0.8.1", "ours": "0.1", "wants-any": "1.0", "torch": "2.9.0"}.items()
    assert "einops" not in site.versions(site.base)
    words = ["env", "python3", "-c", "import einops, torch, ours; print(einops.V)"]
    done = completed(words, env=activate(place, site.variables(engine)))
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    record = json.loads((place / "trn-environment.json").read_text())
    assert record["requirements"] == ["wants-any", 'absent; sys_platform == "darwin"', "torch>=2.1", lines[4]]
    # a later job finds it, also by another file with the same lines
    other = site.root / "other.txt"
    other.write_text("# the same\n" + "\n".join(lines).replace("  # and with it einops, below 0.9", ""))
    again = cluster.write(steps(read(other), engine), "run-2")
    code, output = cluster.prepare(again, "check")
    assert (code, "making" in output) == (0, False), output
    assert cluster.environment(again) == place
    # hashes
    for hash, ok in ((digest, True), ("0" * 64, False)):
        hashed = cluster.write(steps(read([f"einops==0.8.1 --hash=sha256:{hash}"]), engine), f"run-{hash[:5]}")
        code, output = cluster.prepare(hashed)
        assert (code == 0) == ok, output
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in output
    assert "trn: requirements could not be installed: see what pip says above" in output


@pytest.mark.parametrize(
    ("line", "installed", "message"),
    [
        ("wants-new", "", "trn: wants-new 1.0 wants torch==2.14.1, and torch 2.9.0 is never replaced: Neuron needs it. Take a version of wants-new"),
        ("torch>2.9.0,<2.10", "", "trn: requirements wants torch<2.10 and >2.9.0, and torch 2.9.0 is never replaced: Neuron needs it. Write torch without a version"),
        ("old-nxd", "neuronx-distributed==0.17.26814", "trn: old-nxd 1.0 wants neuronx-distributed<0.17, and neuronx-distributed 0.17.26814 is never"),
        ("wants-url", "", "trn: wants-url brings torch 2.9.0, and torch 2.9.0 is never replaced: Neuron needs it. Remove it from the file"),
        ("old-nxd", "", ""),  # which then replaces nothing
    ],
)  # fmt: skip
def test_what_pip_would_replace_is_refused(line: str, installed: str, message: str, site: Site) -> None:
    if installed:
        site.install(installed)
    own = tree(site.root, "torch")
    (own / "backend.py").write_text((own / "backend.py").read_text().replace("0.1", "2.9.0"))
    head_node.wheel(site.root / "wheels", "wants-url", "1.0", {}, [f"torch @ file://{own}"])
    cluster = Cluster.of(site, "eks")
    code, output = cluster.prepare(cluster.write(steps(read([line]), "eks")))
    assert code == (64 if message else 0), output
    assert message in output
    assert bool(site.environments) == (not message)


def test_files_of_the_workdir(site: Site) -> None:
    """A wheel, a folder with wheels, and the code itself, in a folder whose files hide modules of pip's."""
    code = tree(site.root, "ours")
    for name in ("logging.py", "typing.py"):
        (code / name).write_text("raise SystemExit('not this one')\n")
    (code / "t.py").write_text("1\n")
    (code / "wheels").mkdir()
    head_node.wheel(code / "wheels", "einops", "0.9.0", SECOND)
    head_node.wheel(code, "mine", "1.0", {"mine.py": ""})
    (code / "requirements.txt").write_text("--find-links wheels\neinops==0.9.0\nmine-1.0-py3-none-any.whl\n-e .\n")
    job = Script.from_workdir(code, "t.py", requirements=code / "requirements.txt")
    cluster = Cluster.of(site, "slurm")
    given = steps(job.requirements, workdir=job.workdir)
    folder = cluster.write(given)
    shutil.copytree(code, folder / "code")  # as `code` fetches it before
    status, output = cluster.prepare(folder)
    assert status == 0, output
    shutil.rmtree(folder / "code")  # the environment does not need the job's files
    there = site.versions(cluster.environment(folder))
    assert there.items() >= {"einops": "0.9.0", "mine": "1.0", "ours": "0.1"}.items()
    # another content of a file that is named is another environment; of others it is not
    (code / "t.py").write_text("2\n")
    same = Script.from_workdir(code, "t.py", requirements=code / "requirements.txt")
    assert steps(same.requirements, workdir=same.workdir) != given  # . is all of it
    (code / "requirements.txt").write_text("--find-links wheels\neinops==0.9.0\nmine-1.0-py3-none-any.whl\n")
    names = []
    for text in ("3", "4"):
        (code / "t.py").write_text(text)
        one = Script.from_workdir(code, "t.py", requirements=code / "requirements.txt")
        names.append(steps(one.requirements, workdir=one.workdir))
    assert names[0] == names[1]


class Index(http.server.BaseHTTPRequestHandler):
    """A package index for those who have the token."""

    wheels: Path

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode():
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return
        name = self.path.rsplit("/", 1)[-1]
        page = b'<a href="/einops-0.9.0-py3-none-any.whl">einops-0.9.0-py3-none-any.whl</a>'
        body = (self.wheels / name).read_bytes() if name else page
        self.send_response(200 if name or "einops" in self.path else 404)
        self.send_header("Content-Type", "application/zip" if name else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    wheels = tmp_path / "private"
    wheels.mkdir()
    head_node.wheel(wheels, "einops", "0.9.0", SECOND)
    handler = type("Handler", (Index,), {"wheels": wheels})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_private_index_gets_the_token_and_nobody_sees_it(site: Site, index: str) -> None:
    """pip itself prints the address of a package with its password."""
    cluster = Cluster.of(site, "slurm")
    lines = [
        f"-i http://me:${{TOKEN}}@{index}/simple",
        "einops",
        f"absent @ http://me:${{TOKEN}}@{index}/absent-1.0.zip ; python_version > '9'",
    ]
    env = {"TOKEN": TOKEN, "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": ""}
    folder = cluster.write(steps(read(lines)), variables=env)
    code, output = cluster.prepare(folder)
    assert code == 0, output
    place = cluster.environment(folder)
    assert site.versions(place)["einops"] == "0.9.0"
    failing = read([f"absent @ http://me:${{TOKEN}}@{index}/absent-1.0.zip"])
    code, more = cluster.prepare(cluster.write(steps(failing), "run-2", variables=env))
    assert code == 75
    assert "http://me:****@" in more
    assert TOKEN not in output + more
    files = [f for f in site.trn.rglob("*") if f.is_file() and TOKEN.encode() in f.read_bytes()]
    assert {f.name for f in files} == {"env.json"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("    wants-new 1.0 depends on torch==2.14.1", "wants-new 1.0 wants torch==2.14.1"),
        ("    The user requested torch_xla<2", "own.txt wants torch_xla<2"),
        ("    The user requested (constraint) torch==2.9.0", ""),
        ("    x 1 depends on numpy<2", ""),
        ("", ""),
    ],
)
def test_why_pip_did_not_install(said: str, told: str) -> None:
    explained = explain({"torch": "2.9.0", "torch-xla": "2.9.0"}, f"ERROR: no\n{said}\nmore\n", "own.txt")
    assert (explained[: len(told)], bool(explained)) == (told, bool(told))


def test_what_is_hidden() -> None:
    assert secrets(["abc", "", "a%20secret", "longer-than"]) == [b"longer-than", b"a%20secret", b"a secret"]
