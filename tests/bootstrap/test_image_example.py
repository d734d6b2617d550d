"""The instructions of examples/torchneuron, run by a shell on a clean Ubuntu with AWS's packages as the stand-ins publish them: keys,
signatures and versions count. Docker, the base image and PyPI's packages are not there."""

from __future__ import annotations

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.fake_vendor import EFA_VERSION, SUFFIX
from tests.bootstrap.node import SERVER, Node, Result
from tests.jobs.test_image_examples import TORCHNEURON, arguments, instructions, requirements

NEURON, EFA = "aws-neuronx-runtime-lib", "efa_installer.sh"


def run(node: Node, fingerprints: dict[str, str], part: str, **given: str) -> Result:
    """The one RUN instruction that has these words, with the arguments before it, as Docker runs it."""
    [shell] = [rest for word, rest in instructions(TORCHNEURON) if word == "SHELL"]
    assert shell == '["/bin/bash", "-euo", "pipefail", "-c"]'
    [command] = [rest for word, rest in instructions(TORCHNEURON) if word == "RUN" and part in rest]
    values = arguments(TORCHNEURON) | {
        "NEURON_APT": f"{SERVER}/apt",
        "NEURON_KEY": f"{SERVER}/apt/KEY.PUB",
        "NEURON_FINGERPRINT": fingerprints["TRN_NEURON_KEY_FINGERPRINT"],
        "EFA_URL": f"{SERVER}/efa",
        "EFA_INSTALLER": EFA_VERSION,
        "EFA_FINGERPRINT": fingerprints["TRN_EFA_KEY_FINGERPRINT"],
        "NEURON_PIP": f"{SERVER}/pip",
        "TORCH_PIP": f"{SERVER}/pip",
    }
    return node.run("/bin/bash", "-euo", "pipefail", "-c", command, env=values | given)


@pytest.fixture
def node(new_node: NewNode) -> Node:
    return new_node("ubuntu-24.04")


def installed(node: Node) -> dict[str, str]:
    listing = node.run("dpkg-query", "-W", "-f", "${Package} ${Version}\n", "aws-neuronx-*").out
    return dict(line.split() for line in listing.splitlines())


@pytest.mark.sweep
def test_the_instructions_install_the_pinned_versions(node: Node, fingerprints: dict[str, str]) -> None:
    given = arguments(TORCHNEURON)
    done = run(node, fingerprints, NEURON)
    assert done.code == 0, done.err
    wanted = {"runtime-lib": "RUNTIME", "collectives": "COLLECTIVES", "tools": "TOOLS"}
    found = installed(node)
    assert set(found) == {f"aws-neuronx-{name}" for name in wanted}
    for name, argument in wanted.items():
        assert found[f"aws-neuronx-{name}"].partition("-")[0] == given[argument]
    done = run(node, fingerprints, EFA)
    assert done.code == 0, done.err
    assert node.path("/opt/amazon/efa/bin/fi_info").exists()
    assert not node.path("/tmp/efa").exists()
    # of the packages of Python, those that the stand-in of AWS's index has
    published = [line for line in requirements(TORCHNEURON) if line.startswith(("torch-neuronx", "neuronx-cc"))]
    node.write("/opt/requirements.txt", "\n".join(published) + "\n")
    assert node.run("apt-get", "update").code == 0
    assert node.run("apt-get", "install", "--yes", "python3.12-venv").code == 0
    done = run(node, fingerprints, "/opt/requirements.txt", PIP_INDEX_URL=f"{SERVER}/pip")
    assert done.code == 0, done.err
    listing = node.run("/opt/venv/bin/pip", "freeze").out.split()
    assert {line.removesuffix(SUFFIX) for line in listing} == {line.removesuffix(".*") for line in published}


FAILURES = {
    "another key of Neuron": (NEURON, {"NEURON_FINGERPRINT": "0" * 40}, "KEY.PUB has the fingerprint "),
    "a repository signed with another key": (NEURON, {"NEURON_APT": f"{SERVER}/apt-other-key"}, "is not signed"),
    "a tampered package": (
        NEURON, {"NEURON_APT": f"{SERVER}/apt-tampered", "TOOLS": "2.31.13.0"}, "Unable to fetch some archives",
    ),
    "a version that is not published": (
        NEURON, {"RUNTIME": "2.99.0.0"}, "Version '2.99.0.0*' for 'aws-neuronx-runtime-lib' was not found",
    ),
    "a tampered EFA installer": (EFA, {"EFA_URL": f"{SERVER}/efa-tampered"}, "BAD signature"),
    "another key of EFA": (EFA, {"EFA_FINGERPRINT": "0" * 40}, "EFA's key is not 0000"),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", FAILURES)
def test_what_is_not_signed_or_not_there_fails_the_build(node: Node, fingerprints: dict[str, str], name: str) -> None:
    part, given, message = FAILURES[name]
    done = run(node, fingerprints, part, **given)
    assert done.code != 0
    assert message in done.out + done.err
    assert installed(node) == {}
    assert not node.path("/opt/amazon/efa/bin/fi_info").exists()
