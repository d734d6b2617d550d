"""What we write for the nodes is read back by the nodes' own reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import completed
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.node import env as node_env
from trainium_cdk.description.node.scripts import own_files, scripts_dir
from trainium_cdk.description.settings import Bootstrap, Environment, OwnScript

READER = """
set -Eeuo pipefail
source "$1/lib/settings.sh"; shift
settings_load "$@" TRN_NODE_ROLE=compute
for key in "${!SETTING_KINDS[@]}"; do printf '%s=%s\\n' "${key}" "${!key}"; done
"""
COUNTERS = "mem_ecc_uncorrected,mem_ecc_repairable_uncorrected,sram_ecc_uncorrected"
ENVIRONMENTS = sorted(Path("tests/environments").glob("*.yaml"))


def read_back(folder: Path, text: str, *arguments: str) -> dict[str, str]:
    (folder / "node.env").write_text(text)
    done = completed(["bash", "-c", READER, "reader", scripts_dir(), folder / "node.env", *arguments])
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda f: f.stem)
def test_round_trip(file: Path, tmp_path: Path) -> None:
    env = settings.load(file)
    for queue in env.pcluster.queues:
        found = read_back(tmp_path, node_env.render(env), *node_env.queue_arguments(env, queue.name))
        assert found.items() >= node_env.values(env).items()
        kinds = [env.catalog.instance(r.instance_type) for r in queue.compute_resources]
        assert int(found["TRN_NEURON_DEVICES_EXPECTED"]) == kinds[0].neuron_devices
        if len(kinds) == 1:
            assert int(found["TRN_EFA_EXPECTED"]) == kinds[0].efa_interfaces


def test_what_pip_takes_nodes_take(tmp_path: Path) -> None:
    packages = ["numpy", "transformers==4.52.*", "vllm==0.11.0+cpu", "x[a,b]~=1.4", "y!=1.0.*", "z>=1!2.0rc1"]
    env = settings.validate({"bootstrap": {"pip_packages": packages}})
    assert read_back(tmp_path, node_env.render(env))["TRN_PIP_EXTRA"] == " ".join(packages)


def test_what_has_spaces_reaches_the_nodes_as_lines(tmp_path: Path) -> None:
    packages = [
        "wandb==0.21", "transformers >= 4.40, < 5", "tomli ; python_version<'3.11' and sys_platform == 'linux'",
        "peft @ git+https://github.com/huggingface/peft@abc", "git+https://github.com/o/r@v1#egg=r",
        "https://h.org/own-1.0-py3-none-any.whl", "--extra-index-url https://h.org/simple?a=1&b=2", "--find-links=https://h.org",
    ]  # fmt: skip
    env = settings.validate({"bootstrap": {"pip_packages": packages}})
    found = read_back(tmp_path, node_env.render(env))
    assert found["TRN_PIP_EXTRA"] == "wandb==0.21 transformers<5,>=4.40"
    assert found["TRN_PIP_LINES"].split("|") == [
        'tomli; python_version < "3.11" and sys_platform == "linux"',
        "peft @ git+https://github.com/huggingface/peft@abc",
        "git+https://github.com/o/r@v1#egg=r",
        "https://h.org/own-1.0-py3-none-any.whl",
        "--extra-index-url=https://h.org/simple?a=1&b=2",
        "--find-links=https://h.org",
    ]
    assert settings.validate({"bootstrap": {"pip_packages": env.bootstrap.pip_packages}}) == env


def test_a_package_may_have_two_versions_under_two_conditions() -> None:
    packages = [
        "numpy<2; python_version < '3.12'",
        "numpy>=2; python_version >= '3.12'",
        "git+https://h.org/a",
        "git+https://h.org/b",
    ]
    env = settings.validate({"bootstrap": {"pip_packages": packages}})
    assert [p for p in checks.check(env) if "pip_packages" in p.key] == []


@pytest.mark.parametrize("venv", ["/opt/venvs/", "/opt//venvs", "/opt/./venvs"])
def test_a_path_has_one_form(venv: str, tmp_path: Path) -> None:
    env = settings.validate({"bootstrap": {"venv": venv}})
    assert read_back(tmp_path, node_env.render(env))["TRN_VENV"] == env.bootstrap.venv == "/opt/venvs"


def test_a_queue_of_different_types_checks_only_common_properties() -> None:
    env = settings.load("tests/environments/many-queues.yaml")  # trn1: 8 interfaces, trn1n: 16; both 16 devices
    assert node_env.queue_arguments(env, "bert") == ("TRN_NEURON_DEVICES_EXPECTED=16", "TRN_EFA_EXPECTED=0")


def test_the_default_node() -> None:
    assert node_env.render(settings.load()).splitlines()[1:8] == [
        "TRN_USER=ubuntu",
        "TRN_MOUNTS=/efs",
        "TRN_JOBS_USER=trn-jobs:1999",
        f"TRN_DEVICE_COUNTERS={COUNTERS}",
        "TRN_OS_PACKAGES='jq g++ git make python3-dev'",
        "TRN_NEURON_SDK=2.28.1",
        "TRN_NEURON_DKMS=2.26.10.0",
    ]


@pytest.mark.parametrize("engine", ["slurm", "pcs"])
def test_users_have_accounts_on_the_nodes_of_either_slurm(engine: str) -> None:
    users = {"users": [{"name": "alice", "uid": 2001}, {"name": "bob", "uid": 2002}]}
    env = settings.validate({"pcluster" if engine == "slurm" else "pcs": users})
    found = node_env.values(env, engine=engine)
    assert found["TRN_USERS"] == "alice:2001 bob:2002"
    assert "TRN_USERS" not in node_env.values(env, engine=engine, image=True)
    assert "TRN_USERS" not in node_env.values(env, engine={"slurm": "pcs", "pcs": "slurm"}[engine])


def test_without_access_to_the_repositories_nothing_is_installed() -> None:
    env = settings.load("tests/environments/no-internet.yaml")
    assert node_env.values(env) == {
        "TRN_USER": "ubuntu",
        "TRN_MOUNTS": "/efs",
        "TRN_JOBS_USER": "trn-jobs:1999",
        "TRN_DEVICE_COUNTERS": COUNTERS,
    }


def test_what_is_done_about_a_device_error(tmp_path: Path) -> None:
    for said, expected in (("{}", "replace"), ("{health: {device: tell}}", "tell")):
        env = settings.parse(f"jobs: {said}\n")
        found = read_back(tmp_path, node_env.render(env))
        assert (found["TRN_DEVICES"], found["TRN_DEVICE_COUNTERS"]) == (expected, COUNTERS)


@pytest.mark.parametrize(
    ("bootstrap", "expected"),
    [
        ({}, {"TRN_NEURON_CC": "2.23.6484.0", "TRN_TORCH_NEURONX": "2.9.0.2.12.22436", "TRN_PYTHON": "python3.12"}),
        ({"framework": "none"}, {}),
        (
            {"neuron_release": "2.33.0", "framework": "torch-native", "pip_packages": ["wandb==0.21"]},
            {
                "TRN_PYTHON": "python3.12",
                "TRN_NEURON_CC": "2.28.7631.0",
                "TRN_PIP_EXTRA": "torch-neuronx==2.14.3.0 nki==0.7.0 wandb==0.21",
            },
        ),
    ],
)
def test_framework(bootstrap: dict[str, object], expected: dict[str, str]) -> None:
    env = settings.validate({"bootstrap": bootstrap})
    keys = ("TRN_PYTHON", "TRN_NEURON_CC", "TRN_TORCH_NEURONX", "TRN_PIP_EXTRA")
    assert {k: v for k, v in node_env.values(env).items() if k in keys} == expected


@pytest.mark.parametrize(
    ("venv", "shared"),
    [
        ("aws_neuron_venv_pytorch", "yes"),
        ("/efs/venv", "yes"),
        ("/home/ubuntu/venv", "yes"),
        ("/opt/venv", "no"),
        ("/efs2/venv", "no"),
    ],
)
def test_a_venv_outside_shared_storage_is_made_on_each_node(venv: str, shared: str) -> None:
    env = settings.validate({"bootstrap": {"venv": venv}})
    assert node_env.values(env)["TRN_VENV_SHARED"] == shared


@pytest.mark.parametrize("number", [1, 100, 101, 1001])
def test_own_scripts_run_in_the_order_of_the_file(number: int) -> None:
    """Nodes run them in the order of their names."""
    own = tuple(OwnScript(name=f"s{i}", script="#!/bin/sh\n", nodes=("head",)) for i in range(number))
    names = sorted(own_files(Environment(bootstrap=Bootstrap(scripts=own))))
    assert [name.partition("-")[2] for name in names] == [script.name for script in own]
