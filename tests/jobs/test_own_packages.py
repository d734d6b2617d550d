"""`--requirements`: what a cluster cannot have is refused before anything is sent; the rest is installed for real, by pip, on both engines, and
by a real Slurm. What pip fetches is of this machine."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import shutil
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sandbox import head_node
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from tests.jobs.test_prepare import cluster, recorded
from tests.jobs.vendor import REPOSITORIES, Site
from tests.support import completed, swept
from trainium_cdk.cli import app
from trainium_cdk.jobs import JobError, Script, SlurmBackend, prepared, workdir
from trainium_cdk.jobs.own_packages import offer
from trainium_cdk.jobs.plan import plan
from trainium_cdk.outputs import ClusterOutputs, EksCluster

ENGINES = ["slurm"]
TOKEN = "t0ken-of-mine"
XLA, NATIVE = make_cluster(), make_cluster(
    fleet("trn2.48xlarge"), neuron_release="2.33.0", neuron_driver="2.31.7.0", framework="torch-native"
)  # fmt: skip
OWN_IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/own:1"


def script(*lines: str, **fields: Any) -> Script:
    return Script(filename="t.py", content=b"import einops\nprint('einops', einops.V)\n", requirements=lines, **fields)


REFUSED = [
    ("torch==2.5.1", XLA, "requirements line 1 wants torch==2.5.1, but the environment of TrnPclusterStack has 2.9, and torch is never replaced: "
     "the driver and the compiler need this one. Write torch without a version, or remove the line"),
    ("torch>=2.14", XLA, "has 2.9"),
    ("torch<2.9", XLA, "has 2.9"),
    ("torch==2.9.0", NATIVE, "has 2.14"),
    ("torch-xla==2.8", XLA, "has 2.9"),
    ("torch_neuronx==2.8.0.2.10.16998", XLA, "has 2.9.0.2.12.22436"),
    ("torch-neuronx<2", NATIVE, "has 2.14.3.0"),
    ("neuronx-cc==2.20", XLA, "has 2.23.6484.0"),
    ("nki==0.1", NATIVE, "has 0.7.0"),
    ("torch==2.5.1+cpu", XLA, "has 2.9"),
    ("torch==2.5.1; sys_platform == 'linux'", XLA, "has 2.9"),
    ("torch==2.5.1", make_eks(), "but the image public.ecr.aws/neuron/"),
    ("torch @ https://download.pytorch.org/whl/torch-2.9.0-cp312-cp312-linux_x86_64.whl", XLA, "wants torch of its own"),
    ("https://h.org/torch_xla-2.9.0-py3-none-any.whl", XLA, "wants torch-xla of its own"),
    ("git+https://github.com/pytorch/pytorch#egg=torch", XLA, "wants torch of its own"),
    ("/srv/own-1.0-py3-none-any.whl", XLA, "is not on the cluster's shared file system. Put it into the folder of your code (--workdir), or on /efs/... (trn cp)"),
    ("x @ git+file:///srv/x", XLA, "is not on the cluster's shared file system"),
    ("einops", make_cluster(framework="none"), "has no Python environment"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "on", "message"), REFUSED)
def test_what_a_cluster_cannot_have_is_refused(line: str, on: ClusterOutputs, message: str) -> None:
    with pytest.raises(JobError) as raised:
        plan(script(line), on)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("line", "on"),
    [
        ("torch", XLA),
        ("torch>=2.1", XLA),
        ("torch==2.9.0", XLA),
        ("torch~=2.9.0", XLA),
        ("torch==2.9.0+cpu", XLA),
        ("torch>=2.14", NATIVE),
        ("torch==2.5.1; sys_platform == 'darwin'", XLA),
        ("torch==2.5.1; python_version < '3.10'", XLA),
        ("neuronx-cc==2.23.6484.0+3b612583", XLA),
        ("neuronx-distributed", XLA),
        ("torchvision", XLA),
        ("/efs/own-1.0-py3-none-any.whl", XLA),
        ("torch==2.5.1", make_eks(image=OWN_IMAGE)),  # what it has is not known before
    ],
)
def test_what_replaces_nothing_is_taken(line: str, on: ClusterOutputs) -> None:
    assert any("packages of requirements" in line for line in plan(script(line), on).describe())


@pytest.mark.parametrize(
    ("lines", "fields", "message"),
    [
        (("-i https://me:${TOKEN}@h.org/simple", "einops"), {}, "requirements line 1 needs the variable TOKEN. Give it to the job: --env TOKEN"),
        (("einops", "."), {}, "requirements line 2: . is on this machine, and only the script is sent. Give the folder of your code: --workdir DIR"),
        (("-f wheels", "einops"), {}, "Give the folder of your code: --workdir DIR"),
        (("einops=1",), {}, "requirements line 1: einops=1 has one = where pip compares with two. Write einops==1"),
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
    with pytest.raises(JobError, match=r"line 1: own-1.0-py3-none-any.whl is not in the workdir .*\.trnignore"):
        Script.from_workdir(code, "t.py", requirements=code / "requirements.txt")
    (code / ".trnignore").unlink()
    job = Script.from_workdir(code, "t.py", requirements=code / "requirements.txt")
    assert "./code/own-1.0-py3-none-any.whl" in asked_of_pip(job)["lines"]


def asked_of_pip(job: Script) -> Mapping[str, Any]:
    """The arguments of the step that makes the environment."""
    from trainium_cdk.jobs.slurm.render import render

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
        name("einops\nown-1.0.zip", other="2"),
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
        ({"requirements__txt": "einops"}, "requirements.txt is not installed. To install it, submit with --requirements {}/requirements.txt"),
        ({"uv__lock": "", "pyproject__toml": ""}, "(uv export --project {} --no-hashes --no-emit-project -o requirements.txt)"),
        ({"pyproject__toml": '[project]\nname = "x"\ndependencies = ["einops"]\n'}, "(echo . > requirements.txt)"),
        ({"pyproject__toml": "[tool.ruff]\n"}, ""),
        ({"pyproject__toml": "no TOML"}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_workdir_that_names_packages_is_offered_the_option(
    files: dict[str, str], advice: str, tmp_path: Path
) -> None:
    code = folder(tmp_path / "my code", **files)
    said = offer(workdir.read(code))
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


SECOND = {"einops.py": "V = 2\n"}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site.make(tmp_path)
    add(made.root / "wheels")
    return made


def add(wheels: Path) -> None:
    """Small packages: of one's own, and two that want another PyTorch, by version and by address."""
    head_node.wheel(wheels, "einops", "0.8.1", {"einops.py": "V = 1\n"})
    head_node.wheel(wheels, "einops", "0.9.0", SECOND)
    head_node.wheel(wheels, "torch", "2.14.1", {"torch.py": ""})
    head_node.wheel(wheels, "wants-new", "1.0", {}, ["torch==2.14.1"])
    head_node.wheel(wheels, "wants-any", "1.0", {}, ["torch", "einops"])
    head_node.wheel(wheels, "old-nxd", "1.0", {}, ["neuronx-distributed<0.17"])
    head_node.wheel(wheels, "neuronx-distributed", "0.16.0", {})


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
    head_node.make_repository(tree(site.root, "ours"))
    on = cluster(engine)
    claims = {"claims": [*on.claims, "more"]} if isinstance(on, EksCluster) else {}
    on = on.model_copy(update={"mount_dirs": (*on.mount_dirs, str(site.root)), **claims})
    name = "einops-0.8.1-py3-none-any.whl"
    digest = hashlib.sha256((site.root / "wheels" / name).read_bytes()).hexdigest()
    file = site.root / "requirements.txt"
    (site.root / "limits.txt").write_text("einops<0.9\nabsent==1\n")
    lines = [
        "-c limits.txt", "wants-any  # and with it einops, below 0.9", 'absent; sys_platform == "darwin"', "torch>=2.1",
        f"git+file://{site.root}/repositories/ours@{head_node.REF}#egg=ours",
    ]  # fmt: skip
    file.write_text("\n".join(lines))
    job = Script(filename="t.py", content=b"1", requirements=file)
    code, output = site.prepare(job, on)
    assert code == 0, output
    place = recorded(site, job, on)
    there = site.versions(place)
    assert there.items() >= {"einops": "0.8.1", "ours": "0.1", "wants-any": "1.0", "torch": "2.9.0"}.items()
    assert "einops" not in site.versions(site.base)
    command = f'. "{place}/bin/activate"; python3 -c "import einops, torch, ours; print(einops.V)"'
    done = completed(["bash", "-c", command], env=site.variables(engine))
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    # a later job finds it, also by another file with the same lines
    (site.root / "other.txt").write_text(
        "# the same\n" + "\n".join(lines).replace("  # and with it einops, below 0.9", "")
    )
    again = Script(filename="u.py", content=b"2", requirements=site.root / "other.txt")
    code, output = site.prepare(again, on, "u", mode="check")
    assert (code, "making" in output) == (0, False), output
    assert recorded(site, again, on, "u") == place
    # hashes
    hashed = Script(filename="t.py", content=b"1", requirements=[f"einops==0.8.1 --hash=sha256:{digest}"])
    code, output = site.prepare(hashed, on, "v")
    assert code == 0, output
    wrong = Script(filename="t.py", content=b"1", requirements=["einops==0.8.1 --hash=sha256:" + "0" * 64])
    code, output = site.prepare(wrong, on, "w")
    assert code != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in output
    assert "trn: requirements could not be installed: see what pip says above" in output


@pytest.mark.parametrize(
    ("line", "installed", "message"),
    [
        ("wants-new", "", "wants-new 1.0 wants torch==2.14.1, and torch 2.9.0 is never replaced: Neuron needs it. Take a version of wants-new"),
        ("torch>2.9.0,<2.10", "", "requirements wants torch<2.10 and >2.9.0, and torch 2.9.0 is never replaced: Neuron needs it. Write torch without a version"),
        ("old-nxd", "neuronx-distributed==0.17.26814", "old-nxd 1.0 wants neuronx-distributed<0.17, and neuronx-distributed 0.17.26814 is never"),
        ("wants-url", "", "wants-url brings torch 2.9.0, and torch 2.9.0 is never replaced: Neuron needs it. Remove it from the file"),
        ("old-nxd", "", ""),  # which then replaces nothing
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_what_pip_would_replace_is_refused(line: str, installed: str, message: str, engine: str, site: Site) -> None:
    if installed:
        site.install(installed)
    wheels = site.root / "wheels"
    own = tree(site.root, "torch")
    (own / "backend.py").write_text((own / "backend.py").read_text().replace("0.1", "2.9.0"))
    head_node.wheel(wheels, "wants-url", "1.0", {}, [f"torch @ file://{own}"])
    on = cluster(engine)
    code, output = site.prepare(script(line), on)
    assert (code == 0) == (not message), output
    assert message in output
    assert bool(site.environments) == (not message)
    assert not [*site.trn.rglob("requirements.said")]


@pytest.mark.parametrize("engine", swept(ENGINES, "slurm"))
def test_files_of_the_workdir(engine: str, site: Site, tmp_path: Path) -> None:
    """A wheel, a folder with wheels, and the code itself, in a folder whose files hide modules of pip's."""
    code = tree(site.root, "ours")
    for name in ("logging.py", "typing.py"):
        (code / name).write_text("raise SystemExit('not this one')\n")
    (code / "t.py").write_text("1\n")
    (code / "wheels").mkdir()
    head_node.wheel(code / "wheels", "einops", "0.9.0", SECOND)
    head_node.wheel(code, "mine", "1.0", {"mine.py": ""})
    (code / "requirements.txt").write_text("--find-links wheels\neinops==0.9.0\nmine-1.0-py3-none-any.whl\n-e .\n")
    job, on = Script.from_workdir(code, "t.py", requirements=code / "requirements.txt"), cluster(engine)
    place = site.directory(site.submission(job, on)) / "code"
    shutil.copytree(code, place)  # as `prepare` fetches it before
    for part in (site.trn / "jobs", place.parent):
        part.chmod(0o777)  # the pod's user is another one
    code_, output = site.prepare(job, on)
    assert code_ == 0, output
    shutil.rmtree(place)  # the environment does not need the job's files
    there = site.versions(recorded(site, job, on))
    assert there.items() >= {"einops": "0.9.0", "mine": "1.0", "ours": "0.1"}.items()


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
        body = (
            (self.wheels / name).read_bytes()
            if name
            else b'<a href="/einops-0.9.0-py3-none-any.whl">einops-0.9.0-py3-none-any.whl</a>'
        )
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
    engine = "slurm"  # the pods here have no network
    lines = [
        f"-i http://me:${{TOKEN}}@{index}/simple",
        "einops",
        f"absent @ http://me:${{TOKEN}}@{index}/absent-1.0.zip ; python_version > '9'",
    ]
    env = {"TOKEN": TOKEN, "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": ""}
    job, on = script(*lines, env=env), cluster(engine)
    assert TOKEN not in "".join(plan(job, on).describe())
    code, output = site.prepare(job, on)
    assert code == 0, output
    place = recorded(site, job, on)
    assert site.versions(place)["einops"] == "0.9.0"
    failing = script(f"absent @ http://me:${{TOKEN}}@{index}/absent-1.0.zip", env=env)
    code, more = site.prepare(failing, on, "u")
    assert code != 0
    assert "http://me:****@" in more
    assert TOKEN not in output + more
    files = [f for f in site.trn.rglob("*") if f.is_file() and TOKEN.encode() in f.read_bytes()]
    assert {f.name for f in files} <= {"env.json"}  # as every variable of a job
    assert "TOKEN" not in json.loads((place / "trn-environment.json").read_text())


def test_jobs_of_a_real_slurm(backend: SlurmBackend, slurm: LocalSlurm) -> None:
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
    [one] = [e for e in prepared.prepared(backend) if e.kind == "script"]
    assert one.requirements == ("einops==0.8.1", 'absent; sys_platform == "win32"')
    ok, text, _ = run(script("wants-new"), "c")
    assert not ok
    assert "trn: wants-new 1.0 wants torch==2.14.1, and torch " in text
    prepared.remove(backend, [one.name])
    assert [e for e in prepared.prepared(backend) if e.kind == "script"] == []
