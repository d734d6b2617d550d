"""What a process of JAX finds: a table by instance type, LNC and nodes, read in the child; and how one that fails ends."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.conftest import fleet
from tests.jobs.conftest import make_cluster as slurm
from tests.jobs.kubernetes.conftest import fleet as nodes_of
from tests.jobs.kubernetes.conftest import make_cluster as eks
from tests.support import ROOT, completed
from trainium_cdk.client.jobs.job_spec import job_spec
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.jobs import JobError, Script
from trainium_cdk.runner.work.node import copies_here
from trainium_cdk.runner.work.places import StageNode, places, variables

STARTER = ROOT / "constructs/trainium_cdk/client/jobs/sent/jax_process.py"
JAX = {"framework": "jax", "neuron_release": "2.33.0", "neuron_driver": "2.31.7.0"}
SHOW = "import json, os, sys\nprint(json.dumps([dict(os.environ), sys.argv, sys.path[0], __name__]))\n"


def script(**fields: Any) -> Script:
    return Script(**{"filename": "train.py", "content": b"import jax", "launcher": "jax", "nodes": 2, **fields})


def child(folder: Path, on: Any, job: Script, node: int, copy: int = 0) -> dict[str, str]:
    """The variables of one process, as it prints them."""
    made = job_spec("a", plan(job, on))
    stage = made.stages[-1]
    at = StageNode(Path("/efs/trn/jobs/a"), Path("/efs/trn/jobs/a"), node, stage.nodes, f"n-{node}", "10.0.0.1")
    without = replace(made, environment=replace(made.environment, venv="", venv_required=False, packages=False))
    given = variables(at, without, stage, made.variables, places(at, without, stage, made.variables))
    (folder / "show.py").write_text(SHOW)
    done = completed(
        [sys.executable, STARTER, "show.py", "-x"],
        env={**given, **copies_here(at, stage)[copy]},
        cwd=folder,
        check=True,
    )
    found, argv, first, name = json.loads(done.stdout)
    assert (argv, first, name) == (["show.py", "-x"], str(folder), "__main__")
    return dict(found)


@pytest.mark.parametrize("engine", ["slurm", "eks"])
@pytest.mark.parametrize(
    ("type", "lnc", "nodes", "tasks", "process", "devices", "visible"),
    [  # 2 x trn2.48xlarge is the public script: devices_per_node=64, SLURM_NODEID (aws-zhenguo/axlearn, run_mainline.sh, 1f254c39)
        ("trn2.48xlarge", None, 2, 1, (1, 0), "64,64", None),
        ("trn2.48xlarge", 1, 2, 1, (1, 0), "128,128", None),
        ("trn2.48xlarge", None, 2, 4, (1, 2), "16,16,16,16,16,16,16,16", "32-47"),
        ("trn1.32xlarge", None, 4, 1, (3, 0), "32,32,32,32", None),
        ("trn1.2xlarge", None, 1, 1, (0, 0), "2", None),
    ],
)  # fmt: skip
def test_what_it_finds(
    engine: str, type: str, lnc: int | None, nodes: int, tasks: int, process: tuple[int, int], devices: str, visible: str | None, tmp_path: Path
) -> None:  # fmt: skip
    one = nodes_of(type, 8).model_copy(update={"queue": "q"})
    one = one.model_copy(update={"lnc": lnc, "cores": 128} if lnc else {})
    on = slurm(one, **JAX) if engine == "slurm" else eks(one, **JAX, image="r/jax:1")
    node, copy = process
    found = child(tmp_path, on, script(nodes=nodes, tasks_per_node=tasks, queue="q"), node, copy)
    wanted = {
        "NEURON_RT_ROOT_COMM_ID": "10.0.0.1:2022",
        "NEURON_PJRT_PROCESSES_NUM_DEVICES": devices,
        "NEURON_PJRT_PROCESS_INDEX": str(node * tasks + copy),
        "NEURON_RT_VISIBLE_CORES": visible,
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:2023",
        "JAX_NUM_PROCESSES": str(nodes * tasks),
        "JAX_PROCESS_ID": str(node * tasks + copy),
        "JAX_COMPILATION_CACHE_DIR": "/efs/trn/neuron_cache/script-train/jax",
        "DISTRIBUTED_COORDINATOR": "10.0.0.1:2023",
        "FI_PROVIDER": "efa" if nodes > 1 else None,
        "NEURON_LOGICAL_NC_CONFIG": str(lnc) if lnc else None,
    }
    assert {name: found.get(name) for name in wanted} == wanted
    assert found["NEURON_CC_FLAGS"].startswith(f"--cache_dir=/efs/trn/neuron_cache/script-train/n-{node}")
    assert len(found["JAX_LOCAL_DEVICE_IDS"].split(",")) == int(devices.split(",")[0])


def test_your_own_variables_stay(tmp_path: Path) -> None:
    own = {
        "MASTER_PORT": "4000",
        "JAX_NUM_PROCESSES": "9",
        "JAX_COMPILATION_CACHE_DIR": "",
        "NEURON_RT_ROOT_COMM_ID": "h:1",
    }
    found = child(tmp_path, slurm(fleet("trn2.48xlarge"), **JAX), script(env=own), 0)
    assert {name: found[name] for name in own} == own
    assert found["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:4001"


@pytest.mark.parametrize(
    ("launcher", "framework", "note"),
    [
        ("jax", "torch-xla", "launcher is jax, but TrnPclusterStack has PyTorch/XLA, not JAX for Neuron"),
        ("torchrun", "jax", "launcher is torchrun, but TrnPclusterStack has JAX, not PyTorch for Neuron"),
        ("jax", "jax", None),
        ("jax", "none", None),
        ("none", "jax", None),
    ],
)
def test_the_nodes_have_another_framework(launcher: str, framework: str, note: str | None) -> None:
    said = plan(script(launcher=launcher), slurm(fleet("trn2.48xlarge"), framework=framework)).notes
    assert [one.partition(". ")[0] for one in said if "launcher" in one] == ([note] if note else [])


def test_each_process_needs_a_neuroncore() -> None:
    one = slurm(fleet("trn1.2xlarge"), **JAX)
    with pytest.raises(JobError, match=r"3 processes are .* has 2 NeuronCores, .* Use --tasks-per-node 2 or less"):
        plan(script(nodes=1, tasks_per_node=3), one)
    assert plan(script(nodes=1, tasks_per_node=2), one).notes == ()
    [note] = plan(script(tasks_per_node=3), slurm(fleet("trn2.48xlarge"), **JAX)).notes
    assert note == "1 of 64 NeuronCores of each node stay unused: each process gets 21"


NODE = {
    "MASTER_ADDR": "h",
    "MASTER_PORT": "1",
    "NNODES": "1",
    "NPROC_PER_NODE": "2",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
}


@pytest.mark.parametrize(
    ("text", "code", "ends"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit('no tokens in /fsx')", 1, "no tokens in /fsx\n"),
        ("def f():\n    raise KeyError('x')\nf()", 1, 'raise KeyError(\'x\')\nKeyError: \'x\'\n'),
        ("if True print(1)", 1, "SyntaxError: invalid syntax\n"),
        ("import time, atexit; atexit.register(time.sleep, 600); 1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import time, atexit; atexit.register(time.sleep, 600); raise SystemExit(3)", 3, ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", [["t.py"], ["-m", "t"]], ids=["script", "module"])
def test_how_it_ends(how: list[str], text: str, code: int, ends: str, tmp_path: Path) -> None:
    """Within 10 seconds, whatever waits at its end; its exception is shown without the lines of the starter."""
    (tmp_path / "t.py").write_text(text)
    done = completed([sys.executable, STARTER, *how], env=NODE, cwd=tmp_path, timeout=60)
    assert (done.returncode, done.stderr[-len(ends) :] if ends else done.stderr) == (code, ends)
    assert "jax_process.py" not in done.stderr
    assert "runpy" not in done.stderr


def test_the_page_shows_the_example() -> None:
    blocks = re.findall(r"```text\n(.*?)```", (ROOT / "docs/guides/jax.md").read_text("utf-8"), re.DOTALL)
    assert [block in (ROOT / "examples/jax/train.py").read_text("utf-8") for block in blocks] == [True, True]


def test_refused() -> None:
    with pytest.raises(
        JobError, match=r"launcher is jax, which starts a Python script or -m MODULE, not run.sh. Remove --launcher"
    ):
        script(filename="run.sh", content=b"true")
    with pytest.raises(JobError, match=r"launcher is jax, which .* not precompile. Remove"):
        script(precompile=True)
    for words in (["python", "-u", "/efs/train.py"], ["python3", "-c", "import jax"]):
        with pytest.raises(JobError, match=f"launcher is jax, which .* not {words[0]} {words[1]}. Remove"):
            Script.from_command(words, launcher="jax")
    assert Script.from_command(["python", "-m", "train", "-u"], launcher="jax").args == ("-m", "train", "-u")
    done = completed([sys.executable, STARTER, "-u", "t.py"], env=NODE)
    assert (done.returncode, done.stderr) == (64, "trn: -u t.py is neither a script nor -m MODULE\n")
