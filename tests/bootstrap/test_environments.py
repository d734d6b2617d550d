"""The virtual environments of the framework on a shared file system: one for each set of requirements, really made on nodes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.fake_vendor import SUFFIX
from tests.bootstrap.node import SERVER
from tests.bootstrap.test_ubuntu import COMPUTE, FRAMEWORK, VENV, compute_node, linked, share
from trainium_cdk import settings
from trainium_cdk.description.node import env as node_env

pytestmark = pytest.mark.sweep

JOB = """
. "$0/bin/activate"
exec python -c 'import sys, time
print("started", flush=True)
sys.stdin.read()
import neuronx_cc, torch_neuronx
print(torch_neuronx.__version__, neuronx_cc.__version__)'
"""


@pytest.mark.sweep
def test_another_framework_comes_beside_the_first_and_a_rollback_finds_its_own(new_node: NewNode) -> None:
    head = new_node(**FRAMEWORK)
    head.become("HeadNode")
    assert head.configure().code == 0
    first = linked(head)
    indices = head.path(f"{first}/pip.conf").read_text()  # for what jobs add
    assert indices == f"[global]\nindex-url = {SERVER}/pip\nextra-index-url = {SERVER}/pip\n"
    job = subprocess.Popen(
        head.words("bash", "-c", JOB, VENV), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "started\n"

    update = "TRN_NEURON_CC=2.28.7631.0"
    done = head.configure(update)
    assert done.code == 0, done.err
    second = linked(head)
    assert second != first
    assert Path(second).parent == Path(first).parent
    version = [f"{VENV}/bin/python", "-c", "import neuronx_cc as c; print(c.__version__)"]
    assert head.run(*version).out == f"2.28.7631.0{SUFFIX}\n"
    # a job that began before has all its files, those it had not yet read too
    out, _ = job.communicate(timeout=600)
    assert out == f"2.9.0.2.15.32035{SUFFIX} 2.26.6360.0{SUFFIX}\n"

    # ParallelCluster rolls the update back, and runs nothing on the head node: the next node that starts moves the link back
    compute = compute_node(new_node, **FRAMEWORK)
    share(head, compute)
    compute.run("touch", "-h", "-d", "1 hour ago", VENV)
    done = compute.configure(*COMPUTE)
    assert done.code == 0, done.err
    assert linked(compute) == first
    # but a node that began before the head node moved the link leaves it
    compute.run("ln", "-sfn", Path(second).name, VENV)
    compute.run("touch", "-h", "-d", "1 hour", VENV)
    assert compute.configure(*COMPUTE).code == 0
    assert linked(compute) == second
    # the head node at its old settings again: nothing is installed twice
    done = head.configure()
    assert done.code == 0, done.err
    assert linked(head) == first
    assert head.status()["changes"] == [f"{VENV} now points to {Path(first).name}"]


@pytest.mark.sweep
def test_an_interrupted_installation_is_not_an_environment(new_node: NewNode) -> None:
    head = new_node(**FRAMEWORK)
    head.become("HeadNode")
    failed = head.configure(f"TRN_NEURON_PIP_URL={SERVER}/absent", f"TRN_PIP_INDEX_URL={SERVER}/absent")
    assert failed.code != 0
    assert not head.path(VENV).is_symlink()
    [half] = head.path("/home/ubuntu").glob("aws_neuron_venv_pytorch-*")
    (half / "lib" / "leftover").write_text("half")
    assert head.configure().code == 0
    assert Path(linked(head)).name == half.name
    assert not (half / "lib" / "leftover").exists()


@pytest.mark.sweep
def test_jax_is_installed_with_the_plug_in_of_its_release(new_node: NewNode) -> None:
    """Settings as the environment gives them. The stand-in of AWS's index has older and newer plug-ins, too."""
    env = settings.validate({"bootstrap": {"framework": "jax"}, "pcluster": {}})
    given = {
        key: value
        for key, value in node_env.values(env).items()
        if key.startswith(("TRN_VENV", "TRN_NEURON_CC", "TRN_PIP_E"))
    }
    head = new_node(**given)
    head.become("HeadNode")
    done = head.configure()
    assert done.code == 0, done.err
    listing = head.run(f"{VENV}/bin/pip", "freeze").out.split()
    assert {line.removesuffix(SUFFIX) for line in listing} == {
        "jax-neuronx==0.10.0.1.0.14198", "libneuronxla==3.0.10135.0", "jax==0.10.0", "neuronx-cc==2.28.7631.0",
    }  # fmt: skip


def test_a_folder_in_place_of_the_link_is_not_changed(new_node: NewNode) -> None:
    head = new_node(**FRAMEWORK)
    head.become("HeadNode")
    head.path(VENV).mkdir()
    done = head.configure()
    assert done.code != 0
    assert f"{VENV} is not a link but a folder" in done.err
    assert f"mv {VENV} {VENV}.old" in done.err
