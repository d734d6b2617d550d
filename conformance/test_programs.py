"""The arguments of the job kinds, as both engines render them, parsed with the parsers of the vendors' programs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance import cases, compare, surface, vendor
from conformance.confined import confined
from conformance.launched import Launched, described
from conformance.upstream import NotAvailable, Tree, find
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt

RESUMED = "/efs/trn/jobs/bert-large-t/output/ckpt_10.pt"
JOBS: dict[str, AnyJob] = {
    name: job for name, job in {**cases.JOBS, **cases.MORE}.items() if isinstance(job, BertLarge)
}


def original(kind: type[AnyJob]) -> str:
    upstream = kind.UPSTREAM
    assert upstream is not None
    return f"{upstream.repository} {upstream.commit[:12]}"


def source_tree(kind: type[AnyJob]) -> Tree:
    """The tree with a kind's program."""
    upstream = kind.UPSTREAM
    assert upstream is not None
    return find(upstream.repository, upstream.commit)


def program(tree: Tree, start: Launched) -> str:
    """The source of the started program."""
    source = tree.read(f"{start.source}/{start.program}")
    assert source is not None, f"there is no {start.source}/{start.program} at {tree.commit}"
    return source


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        pytest.param(name, engine, marks=pytest.mark.original(f"{name} on {engine}: arguments", original(type(job))))
        for name, job in JOBS.items()
        for engine in cases.ENGINES
    ],
)
def test_the_program_takes_our_arguments(name: str, engine: str) -> None:
    job = JOBS[name]
    tree = source_tree(type(job))
    again = [RESUMED] if name == "bert-large" else []
    for start in (
        cases.start(engine, job, "precompile"),
        cases.start(engine, job),
        cases.start(engine, job, "train", *again),
    ):
        parser = surface.parser(surface.argparse_options(program(tree, start)))
        parsed = vars(parser.parse_args(start.arguments))
        assert {name: value for name, value in parsed.items() if value is not None} == compare.options(
            job.kind, start.arguments
        )
        with pytest.raises(surface.Refused, match="no_such_option"):
            parser.parse_args([*start.arguments, "--no_such_option", "1"])


@pytest.mark.original("bert-large: no answer of the metadata service", original(BertLarge))
def test_it_goes_on_where_the_metadata_service_does_not_answer(tmp_path: Path) -> None:
    """As in a pod where the hop limit is 1. Rank 0 asks before the first step, without a time limit, then takes the host's name."""
    vendor.need()
    if os.geteuid() != 0:
        raise NotAvailable("only root can start a program as a pod does")
    job = cases.JOBS["bert-large"]
    start = cases.start("kubernetes", job)
    source = program(source_tree(BertLarge), start)
    [asks] = [
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name == "get_instance_type"
    ]
    tmp_path.chmod(0o755)
    (tmp_path / "ask.py").write_text(f"import os, requests\n{ast.unparse(asks)}\nprint(get_instance_type(None))\n")
    for name, content in described(job, cases.cluster("kubernetes", job)).spec.files.items():
        (tmp_path / name).write_bytes(content)
    python, ask = str(vendor.PYTHON), str(tmp_path / "ask.py")
    plain = ["timeout", "10", python, ask]
    assert "limit_metadata" in start.corrections.split(",")
    corrected = [python, str(tmp_path / "launch.py"), "limit_metadata", ask]
    readable = [tmp_path, vendor.ENVIRONMENT, Path(sys.base_prefix)]
    for command, answer in ((corrected, "pod\n"), (plain, "")):
        words = confined(command, volumes=[tmp_path / "home"], shared=tmp_path / "trn", readable=readable)
        env = {"HOSTNAME": "pod", "PATH": os.environ["PATH"]}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        assert done.stdout == answer, done.stderr


_STOP = """import json, sys
from omegaconf import OmegaConf


OmegaConf.register_new_resolver("multiply", lambda a, b: a * b)  # NeMo registers it


def train(cfg):
    print(json.dumps(OmegaConf.to_container(cfg, resolve=True)), file=open(sys.argv[0] + ".json", "w"))
"""


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(
            e, marks=pytest.mark.original(f"gpt-6.7b on {e}: training_orchestrator.py up to train()", original(Gpt))
        )
        for e in cases.ENGINES
    ],
)
def test_gpt(engine: str, tmp_path: Path) -> None:
    """Hydra and the program's own configuration code run; the module that trains is replaced."""
    tree = source_tree(Gpt)
    vendor.need()
    tree.copy("examples", tmp_path)
    examples = tmp_path / "examples"
    (examples / "training.py").write_text(_STOP)
    for stage in ("precompile", "train"):
        start = cases.start(engine, Gpt(nodes=4, steps=50), stage)
        assert start.source == "examples"
        parsed = run_hydra(examples, start)
        assert parsed["trainer"]["max_steps"] == (10 if stage == "precompile" else 50)
        assert parsed["exp_manager"]["create_checkpoint_callback"] is (stage == "train")
        assert (parsed["trainer"]["devices"], parsed["trainer"]["num_nodes"]) == (32, 4)
        assert parsed["distributed_strategy"]["tensor_model_parallel_size"] == 8
        assert parsed["data"]["data_prefix"] == [1.0, "/efs/trn/data/gpt2-wikipedia/my-gpt2_text_document"]
        assert parsed["compiler_cache_url"] == start.environment["NEURON_CC_FLAGS"].removeprefix("--cache_dir=")
        assert parsed["exp_manager"]["resume_if_exists"] is True
    with pytest.raises(AssertionError, match=r"Could not override 'trainer\.no_such_key'"):
        run_hydra(examples, replace(start, command=("training_orchestrator.py", "trainer.no_such_key=1")))


def run_hydra(examples: Path, start: Launched) -> dict[str, Any]:
    command = [str(vendor.PYTHON), start.program, *start.arguments, f"hydra.run.dir={examples}/run"]
    env = {**os.environ, **vendor.offline(), **start.environment}
    done = subprocess.run(command, cwd=examples, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((examples / f"{start.program}.json").read_text())
    return found


CHECKED = {"bert-large", "finetune", "gpt-6.7b", "torchtitan"}
REST = {name: kind.UPSTREAM for name, kind in kinds().items() if kind.UPSTREAM and name not in CHECKED}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.original(f"{n}: its program", str(REST[n]))) for n in sorted(REST)]
)
def test_a_kind_without_a_check_is_in_the_table(name: str) -> None:
    pytest.skip("its program is not publicly available")
