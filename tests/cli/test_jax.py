"""`bootstrap.framework: jax`: what `trn init`, `trn check` and the dry run of a job say for each instance type, engine and system."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from tests.cli.test_recommended import IMAGE, submit
from tests.jobs.conftest import fleet, make_cluster
from tests.support import golden
from trainium_cdk import settings
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.cli.submit import _processes
from trainium_cdk.client.jobs.kinds import by_name
from trainium_cdk.client.jobs.plan import obstacle, plan
from trainium_cdk.description import checks, engines
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.jobs import Script

CATALOG = Catalog.load()
RELEASES = ("", "2.28.1", "2.33.0")
"""As the file names it; empty: the one that is chosen."""


def cells() -> list[tuple[str, str, str, str]]:
    systems = {
        name: ("image",) if name == "eks" else tuple(CATALOG.parallelcluster.operating_systems)
        for name in engines.ENGINES
    }
    places = [(engine, system) for engine, of in systems.items() for system in of]
    return [
        (*cell, *place) for cell, place in itertools.product(itertools.product(CATALOG.instances, RELEASES), places)
    ]


def outcome(instance_type: str, release: str, engine: str, system: str) -> str:
    """What is installed, or why the environment is refused; what AWS says of it."""
    with TemporaryDirectory() as name:
        file, script = Path(name) / "environment.yaml", Path(name) / "train.py"
        words = ["--engine", engine, "--instance-type", instance_type, "--framework", "jax"]
        done = CliRunner().invoke(app, ["init", str(file), *words])
        if done.exit_code:
            return f"no: {str(done.exception).partition('. ')[0]}"
        section = engines.get(engine).section
        text = file.read_text().replace(
            f"\n{section}:\n", f"\n{section}:\n  os: {system}\n" if engine != "eks" else f"\n{section}:\n"
        )
        file.write_text(
            text.replace("framework: jax}", f"framework: jax, neuron_release: {release}}}") if release else text
        )
        env = settings.load(file)
        found = [p for p in checks.check(env, engine) if p.level != "info"]
        if refused := [p.reason for p in found if p.level == "error"]:
            return f"no: {'; '.join(refused)}"
        script.write_text("import jax\n")
        code, out, err = submit(file, [str(script)], "--launcher", "jax")
        image = ""
        if code and "no container image: " in err:
            image = ", with your image"
            code, out, err = submit(file, [str(script)], "--launcher", "jax", "--image", IMAGE)
        assert code == 0, err
        assert json.loads(out)["nodes"] == 1
        jax = env.release.frameworks["jax"]
        said = "".join(f"; {p.reason}" for p in found)
        return f"yes: {env.release.version}, {' '.join((f'{jax.package}=={jax.version}', *jax.requires))}{image}{said}"


def test_every_type_engine_and_system() -> None:
    """Read the difference when a release is added. Reasons are of the vendor's manifest, setup guide and announcements."""
    rows = [f"{' '.join(filter(None, cell))}\t{outcome(*cell)}" for cell in cells()]
    text = "\n".join(["# type, release where the file names one, engine, system: whether it runs", *rows, ""])
    assert golden(Path(__file__).with_name("jax.txt"), text) == text


JAX = {"framework": "jax", "neuron_release": "2.33.0", "neuron_driver": "2.31.7.0"}


@pytest.mark.parametrize("kind", ["finetune", "torchtitan", "bert-large", "gpt-6.7b"])
def test_a_kind_in_pytorch_does_not_run_there(kind: str) -> None:
    one = by_name(kind)
    assert one
    reason = obstacle(
        one, make_cluster(fleet("trn1.32xlarge" if kind in ("bert-large", "gpt-6.7b") else "trn2.48xlarge"), **JAX)
    )
    assert f"{kind} needs framework torch-" in reason
    assert "have jax. Deploy with `bootstrap: {framework: torch-" in reason


def test_a_script_there_is_one_process_with_all_cores() -> None:
    script, on = Script(filename="train.py", content=b"import jax"), make_cluster(fleet("trn2.48xlarge"), **JAX)
    said = "1 process on each node, with 64 NeuronCores"
    assert _processes(plan(script, on)) == f"{said}; --launcher jax uses all of them"
    assert _processes(plan(script.model_copy(update={"launcher": "jax"}), on)) == said
