"""The arguments of the job kinds, parsed with the parsers of the vendors' programs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance import surface, vendor
from conformance.launched import Launched, launched
from conformance.upstream import Tree, find, why_not
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt, LlamaNxd, kinds

TRN1 = make_cluster(fleet(), neuron_release="2.28.1")


def original(*kinds_: type[AnyJob]) -> str:
    upstream = kinds_[0].UPSTREAM
    assert upstream is not None
    return f"{upstream.repository} {upstream.commit[:12]}"


def source_tree(kind: type[AnyJob]) -> Tree:
    """The tree with a kind's program; skips the test where it is not available."""
    upstream = kind.UPSTREAM
    assert upstream is not None
    tree = find(upstream.repository, upstream.commit)
    if tree is None:
        pytest.skip(why_not(upstream.repository, upstream.commit))
    return tree


def program(tree: Tree, start: Launched) -> str:
    """The source of the started program; the first part of its folder is the tree."""
    path = f"{start.folder.partition('/')[2]}/{start.program}"
    source = tree.read(path)
    assert source is not None, f"there is no {path} at {tree.commit}"
    return source


BERT: Mapping[str, tuple[BertLarge, dict[str, str]]] = {
    "phase 1": (BertLarge(nodes=16), {}),
    "phase 1, resumed": (BertLarge(nodes=16), {"TRN_CHECKPOINT": "/efs/ckpt_10.pt"}),
    "phase 1, AdamW": (BertLarge(nodes=4, optimizer="adamw", warmup_steps=3), {}),
    "phase 2": (BertLarge(nodes=16, phase=2, checkpoint="first"), {"TRN_PHASE1": "/efs/ckpt_7032.pt"}),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.original(f"bert-large: arguments, {n}", original(BertLarge))) for n in BERT],
)
def test_bert(name: str) -> None:
    tree = source_tree(BertLarge)
    job, variables = BERT[name]
    for stage in ("precompile", "train"):
        start = launched(job, TRN1, stage=stage, **variables)
        parsed = surface.argparse_parser(program(tree, start)).parse_args(start.arguments)
        assert parsed.steps_this_run == (10 if stage == "precompile" else job.run_steps or parsed.max_steps)
        assert parsed.phase2 is (job.phase == 2)
        assert bool(parsed.resume_ckpt) is bool(variables)
        assert not parsed.phase2 or parsed.phase1_end_step == 7032


@pytest.mark.original("llama3.1-8b: arguments", original(LlamaNxd))
def test_llama() -> None:
    tree = source_tree(LlamaNxd)
    for stage in ("precompile", "train"):
        start = launched(LlamaNxd(nodes=4, data="/efs/data"), TRN1, stage=stage)
        parsed = surface.argparse_parser(program(tree, start)).parse_args(start.arguments)
        assert (parsed.tensor_parallel_size, parsed.seq_len, parsed.grad_accum_usteps) == (32, 8192, 256)
        assert (parsed.checkpoint_dir is None) is (stage == "precompile")
        model = tree.read(f"{start.folder.partition('/')[2]}/{Path(parsed.model_path).name}/config.json")
        assert model is not None
        assert json.loads(model)["num_hidden_layers"] == parsed.num_layers


_STOP = """import json, sys
from omegaconf import OmegaConf


OmegaConf.register_new_resolver("multiply", lambda a, b: a * b)  # NeMo registers it


def train(cfg):
    print(json.dumps(OmegaConf.to_container(cfg, resolve=True)), file=open(sys.argv[0] + ".json", "w"))
"""


@pytest.mark.original("gpt-6.7b: NxD Training's training_orchestrator.py up to train()", original(Gpt))
def test_gpt(tmp_path: Path) -> None:
    """Hydra and the program's own configuration code run; the module that trains is replaced."""
    tree = source_tree(Gpt)
    if (reason := vendor.missing()) is not None:
        pytest.skip(reason)
    tree.copy("examples", tmp_path)
    examples = tmp_path / "examples"
    (examples / "training.py").write_text(_STOP)
    job = Gpt(nodes=4, steps=50)
    for stage in ("precompile", "train"):
        start = launched(job, TRN1, stage=stage)
        assert start.folder.partition("/")[2] == "examples"
        parsed = run_hydra(examples, start)
        assert parsed["trainer"]["max_steps"] == (10 if stage == "precompile" else 50)
        assert parsed["exp_manager"]["create_checkpoint_callback"] is (stage == "train")
        assert (parsed["trainer"]["devices"], parsed["trainer"]["num_nodes"]) == (32, 4)
        assert parsed["distributed_strategy"]["tensor_model_parallel_size"] == 8
        assert parsed["data"]["data_prefix"] == [1.0, "/shared/data/gpt2-wikipedia/my-gpt2_text_document"]
        assert parsed["compiler_cache_url"] == "/shared/neuron_cache/gpt-6.7b/node"
        assert parsed["exp_manager"]["resume_if_exists"] is True
    with pytest.raises(AssertionError, match=r"Could not override 'trainer\.no_such_key'"):
        run_hydra(examples, replace(start, arguments=("trainer.no_such_key=1",)))


def run_hydra(examples: Path, start: Launched) -> dict[str, Any]:
    command = [str(vendor.PYTHON), start.program, *start.arguments, f"hydra.run.dir={examples}/run"]
    env = {**os.environ, **vendor.offline(), **start.environment}
    done = subprocess.run(command, cwd=examples, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((examples / f"{start.program}.json").read_text())
    return found


CHECKED = {"bert-large", "gpt-6.7b", "llama3.1-8b", "lora", "torchtitan-qwen3-8b"}
REST = {name: kind.UPSTREAM for name, kind in kinds().items() if kind.UPSTREAM and name not in CHECKED}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.original(f"{n}: its program", str(REST[n]))) for n in sorted(REST)]
)
def test_a_kind_without_a_check_is_in_the_table(name: str) -> None:
    pytest.skip("its program cannot run here")
