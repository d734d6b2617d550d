"""What `trn init` writes runs what the catalogue recommends: every instance type, on every engine, before anything is deployed."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from sandbox.paths import HOME as ROOT
from tests import command
from tests.support import golden_rows
from trainium_cdk import settings
from trainium_cdk.client.cli.app import app
from trainium_cdk.description import checks, engines
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.models import TITLES

RUN = CliRunner()
CATALOG = Catalog.load()
ENGINES = tuple(engines.ENGINES)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
IMAGE = "111122223333.dkr.ecr.us-east-2.amazonaws.com/trn:src-0123456789abcdef"
"""As `trn image build` prints it."""
CELLS = [(type, engine) for type in CATALOG.instances for engine in ENGINES]
NOT_OFFERED = "no region that ParallelCluster lists"
WITH_IMAGE = "with your image"


@pytest.fixture(autouse=True)
def nothing_but_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request leaves this process, and no credentials are there."""

    def refuse(*_: object) -> None:
        raise AssertionError("a request")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in [name for name in os.environ if name.startswith(("AWS_", "TRN_"))]:
        monkeypatch.delenv(name)


def submit(file: Path, words: list[str], *more: str) -> tuple[int, str, str]:
    done = RUN.invoke(app, ["submit", *words, "--dry-run", "--json", "--environment", str(file), *more])
    error = str(done.exception) if done.exception and not isinstance(done.exception, SystemExit) else ""
    return done.exit_code, done.stdout, error + done.stderr


def words_of(example: str, folder: Path) -> list[str]:
    """The command of a recommendation, with a commit and a script that are there."""
    (folder / "train.py").write_text("print('step 1 loss 1.0')\n")
    words = shlex.split(example.replace("COMMIT", COMMIT))
    assert words[:2] == ["trn", "submit"]
    return [str(folder / word) if word == "train.py" else word for word in words[2:]]


@cache
def outcome(instance_type: str, engine: str) -> tuple[str, tuple[str, ...]]:
    """What the table says of a cell, and what was wrong."""
    recommended = CATALOG.recommended(instance_type)
    assert recommended
    with TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "environment.yaml"
        done = RUN.invoke(app, ["init", str(file), "--engine", engine, "--instance-type", instance_type])
        if done.exit_code:
            assert "which ParallelCluster" in str(done.exception)
            return NOT_OFFERED, ()
        env = settings.load(file)
        wrong = [p.reason for p in checks.check(env, engine) if p.level != "info"]
        wrong += [] if env.framework == recommended.framework else [f"framework {env.framework}"]
        wrong += [] if env.release.version == recommended.release else [f"release {env.release.version}"]
        needs_image = False
        for kind in recommended.kinds:
            words = words_of(recommended.example(kind), folder)
            code, out, err = submit(file, words)
            if code and engine == engines.EKS.name and "no container image: " in err:
                needs_image = True
                code, out, err = submit(file, words, "--image", IMAGE)
            if code:
                wrong.append(f"{kind}: {err}")
            else:
                planned = json.loads(out)
                most = env.catalog.instance(instance_type).logical_cores()
                # nccom starts the vendor's program once, which uses all NeuronCores
                assert (planned["nodes"], planned["ranks"]) == (1, 1 if kind == "nccom" else most)
        return WITH_IMAGE if needs_image else "yes", tuple(wrong)


@pytest.mark.parametrize(("instance_type", "engine"), CELLS)
def test_what_init_writes_runs_what_is_recommended(instance_type: str, engine: str) -> None:
    assert outcome(instance_type, engine)[1] == ()


def rows() -> list[dict[str, str]]:
    found = []
    for name in CATALOG.instances:
        of = CATALOG.recommended(name)
        assert of
        runs = {engines.get(engine).title: outcome(name, engine)[0] for engine in ENGINES}
        kinds = ", ".join(f"`{kind}`" for kind in of.kinds)
        found.append(
            {"instance type": name, "framework": TITLES[of.framework], "Neuron SDK": of.release, "kinds": kinds, **runs}
        )
    return found


def test_what_runs_where() -> None:
    assert rows() == golden_rows(Path(__file__).with_name("recommended.yaml"), rows())


def test_a_type_that_only_the_file_has_follows_its_family(tmp_path: Path) -> None:
    """Trn3 is in no catalogue of ours: its family has a recommendation."""
    text = (ROOT / "tests/environments/trn3-catalog.yaml").read_text("utf-8")
    file = tmp_path / "trn3.yaml"
    file.write_text(text.replace("bootstrap: {neuron_release: 2.34.0, framework: torch-native}\n", ""))
    env = settings.load(file)
    assert (env.framework, env.release.version) == ("torch-native", "2.33.0")
    recommended = env.catalog.recommended("trn3.48xlarge")
    assert recommended
    for kind in recommended.kinds:
        code, out, err = submit(file, words_of(recommended.example(kind), tmp_path), "--nodes", "2")
        assert code == 0, err
        assert json.loads(out)["usd_per_hour"] == 120.0


def test_the_files_cluster_before_it_is_deployed(tmp_path: Path) -> None:
    """Without credentials: by the option, by TRN_ENV, and by `trn use`; a script with its folder; on standard error what it needs."""
    bare = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def trn(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return command.trn(words, {**bare, **more}, tmp_path)

    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("import model\n")
    (tmp_path / "code" / "model.py").write_text("a = 1\n")
    assert trn("init", "e.yaml", "--instance-type", "trn1.32xlarge", "--region", "us-east-1").returncode == 0
    job = ["submit", "train.py", "--workdir", "code", "--launcher", "torchrun", "--nodes", "2", "--dry-run"]
    done = trn(*job, "--environment", "e.yaml")
    assert done.returncode == 0, done.stderr
    assert '"--nodes=2"' in done.stdout
    assert done.stderr.splitlines()[:5] == [
        "TrnPclusterStack in us-east-1, as e.yaml describes it: AWS is not asked",
        "2 nodes of trn1.32xlarge in queue compute1, 32 NeuronCores each",
        "64 ranks, 32 on each node",
        "global batch size: the program decides",
        done.stderr.splitlines()[4],
    ]
    [price] = [line for line in done.stderr.splitlines() if "USD an hour, at" in line]
    assert price.startswith(f"{2 * 21.50:.2f} USD an hour, at the on-demand price of ")
    assert trn(*job, TRN_ENV="e.yaml").stdout.count("#SBATCH") == done.stdout.count("#SBATCH")
    assert trn("use", "e.yaml").returncode == 0
    in_use = trn(*job, "--json")
    assert json.loads(in_use.stdout)["environment"] == str(tmp_path / "e.yaml")
    assert json.loads(in_use.stdout)["usd_per_hour"] == 43.0
    named = trn(*job, "--after", "bert")
    assert (named.returncode, named.stdout) == (1, "")
    assert "after is 'bert', and no cluster is asked for the rest of it. Give the job's whole id" in named.stderr


def test_a_file_with_a_cluster_wins(tmp_path: Path) -> None:
    from tests.jobs.conftest import make_cluster

    cluster = tmp_path / "cluster.json"
    cluster.write_text(make_cluster(stack="Mine").model_dump_json())
    file = tmp_path / "e.yaml"
    assert RUN.invoke(app, ["init", str(file)]).exit_code == 0
    code, out, err = submit(file, ["bert-large"], "--cluster", str(cluster))
    assert code == 0, err
    assert (json.loads(out)["stack"], json.loads(out)["environment"]) == ("Mine", None)


def test_an_unknown_price_says_how_to_learn_it(tmp_path: Path) -> None:
    """What the line says to add to the file is taken there."""
    file = tmp_path / "e.yaml"
    assert (
        RUN.invoke(
            app, ["init", str(file), "--engine", "pcs", "--instance-type", "trn2.3xlarge", "--region", "ap-south-2"]
        ).exit_code
        == 0
    )
    code, out, err = submit(file, ["finetune"])
    assert code == 0, err
    found = json.loads(out)
    assert found["usd_per_hour"] is None
    assert "see https://calculator.aws/" in found["price"]
    [addition] = re.findall(r"\((catalog: .*\})\)$", found["price"])
    file.write_text(file.read_text() + addition.replace("USD", "2.5") + "\n")
    assert json.loads(submit(file, ["finetune"])[1])["usd_per_hour"] == 2.5
