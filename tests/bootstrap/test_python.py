"""The virtual environment of each system: made with its own Python, from wheels for that Python."""

from __future__ import annotations

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.fake_vendor import SUFFIX
from tests.bootstrap.node import SERVER
from tests.bootstrap.roots import RECIPES
from tests.bootstrap.test_ubuntu import FRAMEWORK, VENV
from tests.bootstrap.test_users import BARE
from tests.support import swept
from trainium_cdk.description.catalog import Catalog


def framework_of(sdk: str) -> dict[str, str]:
    release = Catalog.load().releases[sdk]
    torch = release.frameworks["torch-xla"].version
    return FRAMEWORK | {"TRN_NEURON_CC": release.compiler, "TRN_TORCH_NEURONX": torch}


OWN_PYTHON = {"ubuntu-24.04": ("ubuntu2404", "2.31.0"), "ubuntu-22.04": ("ubuntu2204", "2.28.1")}


@pytest.mark.parametrize("system", swept(OWN_PYTHON, "ubuntu-24.04"))
def test_the_environment_is_made_with_the_systems_own_python(new_node: NewNode, system: str) -> None:
    name, sdk = OWN_PYTHON[system]
    assert Catalog.load().parallelcluster.operating_systems[name].pythons == (RECIPES[system].python,)
    head = new_node(system, **framework_of(sdk))
    head.become("HeadNode")
    # a plain Ubuntu has no venv module: the real package comes from its archive
    assert (head.run("python3", "-c", "import ensurepip").code != 0) == head.own
    done = head.configure()
    assert done.code == 0, done.err
    assert head.run(f"{VENV}/bin/python", "--version").out.startswith(f"Python {head.python}.")
    tag = f"cp{head.python.replace('.', '')}"
    wheel = head.run("sh", "-c", f"cat {VENV}/lib/python{head.python}/site-packages/neuronx_cc-*/WHEEL").out
    assert f"Tag: {tag}-{tag}-linux_x86_64" in wheel


@pytest.mark.sweep
def test_versions_are_compared_as_pip_does(new_node: NewNode) -> None:
    head = new_node(
        **BARE,
        TRN_VENV="aws_neuron_venv_pytorch",
        TRN_NEURON_CC="2.26.6360",
        TRN_PIP_EXTRA="torch-neuronx==2.9.0.2.15.*",
    )
    head.become("HeadNode")
    done = head.configure()
    assert done.code == 0, done.err
    other = head.run(f"{VENV}/bin/pip", "install", "--no-deps", "torch-neuronx==2.9.0.2.14.27725")
    assert other.code == 0, other.err
    assert head.configure().code == 0
    log = head.read("/var/log/trn-bootstrap.log")
    assert "torch-neuronx: wanted ==2.9.0.2.15.*, found 2.9.0.2.14.27725+" in log
    assert head.status()["changes"][0].startswith("installed neuronx-cc==2.26.6360 torch-neuronx==2.9.0.2.15.*")


@pytest.mark.sweep
def test_packages_with_conditions_and_addresses(new_node: NewNode) -> None:
    """Each is one word for pip, whatever is in it."""
    wheel = f"torch_neuronx-2.9.0.2.15.32035{SUFFIX.replace('+', '%2B')}-py3-none-any.whl"
    lines = [
        'absent==1; python_version < "3"',
        f"torch-neuronx @ {SERVER}/pip/torch-neuronx/{wheel}",
        'neuronx-cc==2.26.6360.*; python_version > "3" and sys_platform == "linux"',
        f"--extra-index-url={SERVER}/pip",
    ]
    head = new_node(**BARE, TRN_VENV="aws_neuron_venv_pytorch", TRN_PIP_LINES="|".join(lines))
    head.become("HeadNode")
    done = head.configure()
    assert done.code == 0, done.err
    show = "from importlib.metadata import version as v; print(v('torch-neuronx'), v('neuronx-cc'))"
    assert head.run(f"{VENV}/bin/python", "-c", show).out == f"2.9.0.2.15.32035{SUFFIX} 2.26.6360.0{SUFFIX}\n"
    assert head.configure().code == 0
    assert head.status()["changes"] == []  # nothing is installed again
    other = head.run(f"{VENV}/bin/pip", "install", "--no-deps", "neuronx-cc==2.28.7631.0")
    assert other.code == 0, other.err
    assert head.configure().code == 0
    assert "neuronx-cc: wanted ==2.26.6360.*, found 2.28.7631.0" in head.read("/var/log/trn-bootstrap.log")


@pytest.mark.sweep
def test_a_release_without_wheels_for_the_systems_python_is_refused(new_node: NewNode) -> None:
    head = new_node("ubuntu-22.04", **framework_of("2.31.0"))
    assert head.own
    head.become("HeadNode")
    done = head.configure()
    assert done.code != 0
    assert "pip cannot install neuronx-cc==2.26.6360.0 torch-neuronx==2.9.0.2.15.32035" in done.err
    assert "with Python 3.10." in done.err
    assert "a release supports only some versions of Python" in done.err
