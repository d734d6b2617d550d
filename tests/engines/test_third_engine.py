"""A third engine, in a folder of its own, with one entry point: everything else is as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, completed

ENGINE = Path(__file__).parent / "process"
ENVIRONMENT = "process:\n  machine: desk\nbootstrap: {framework: none}\n"


class Machine:
    """A folder with the engine, registered next to the packages of this environment."""

    def __init__(self, folder: Path):
        self.folder = folder
        info = folder / "packages" / "process_engine-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: process-engine\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[trainium_cdk.engines]\nprocess = process_engine:PROCESS\n")
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TRN_")},
            "PYTHONPATH": os.pathsep.join(map(str, (info.parent, ENGINE, ROOT))),
            "PROCESS_ROOT": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def python(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return completed([sys.executable, *arguments], cwd=self.folder, env=self.env | env)

    def trn(self, *argv: str) -> str:
        done = self.python("-m", "trainium_cdk.cli", *argv)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


def test_its_section_is_validated(machine: Machine) -> None:
    good, bad, absent = (machine.folder / f"{name}.yaml" for name in ("good", "bad", "absent"))
    good.write_text(ENVIRONMENT)
    bad.write_text("process:\n  machine: desk\n  slots: {instance_type: trn1.2xlarge, capacity_type: capacity-block}\n")
    absent.write_text("process:\n  mahcine: desk\n")
    machine.trn("validate", str(good))
    done = machine.python("-m", "trainium_cdk.cli", "validate", str(bad))
    assert done.returncode == 1
    assert (
        "bad.yaml:3: error: process.slots.reservation = (absent): a capacity block needs its reservation" in done.stderr
    )
    assert (
        "absent.yaml:2: error: process.mahcine"
        in machine.python("-m", "trainium_cdk.cli", "validate", str(absent)).stderr
    )
    assert "process" in json.loads(machine.trn("schema"))["properties"]


COUNTED = """
import json, sys
from trainium_cdk import checks, settings
from trainium_cdk.checks.live import Target
from trainium_cdk.checks.live.cost import cost
from trainium_cdk.checks.live.quotas import addresses_wanted
env = settings.load(sys.argv[1])
target = Target(env, "process")
print(json.dumps({
    "cost": {item["what"]: item["full"] for item in cost(target)["items"]},
    "addresses": addresses_wanted(target),
    "standard": [s.instance_type for s in target.servers],
    "problems": [p.reason for p in checks.check(env, "process")],
}))
"""


def test_its_parts_are_counted(machine: Machine) -> None:
    """Cost, quotas and addresses derive from its inventory alone."""
    file = machine.folder / "small.yaml"
    file.write_text(
        ENVIRONMENT + "network: {cidr: 10.0.0.0/24, private_prefix: 28, public_prefix: 28}\n"
        "catalog: {service_prices: {us-east-1: {counter-hour: 0.5}}}\n"
        "storage: {efs: {}}\n"
    )
    file.write_text(
        file.read_text().replace("machine: desk", "machine: desk\n  slots: {max_nodes: 9, instance_type: trn1.2xlarge}")
    )
    done = machine.python("-c", COUNTED, str(file))
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)
    assert counted["cost"]["counter: first edition"] == 0.5
    assert {"dispatcher: m5.large", "dispatcher: root volume"} <= counted["cost"].keys()
    assert counted["addresses"] == {"NAT gateways": 1, "the dispatcher": 1}
    assert counted["standard"] == ["m5.large"]
    assert any("9 nodes and 3 for the dispatcher" in reason for reason in counted["problems"])


@pytest.fixture(scope="module")
def cluster(machine: Machine) -> Path:
    """What `trn cluster` would print of its stack, which the app has synthesised."""
    file = machine.folder / "environment.yaml"
    file.write_text(ENVIRONMENT)
    context = json.dumps({"env": str(file)})
    done = machine.python(str(ROOT / "app.py"), CDK_CONTEXT_JSON=context, CDK_OUTDIR=str(machine.folder / "out"))
    assert done.returncode == 0, done.stderr
    template = json.loads((machine.folder / "out/TrnProcessStack.template.json").read_text())
    values = json.dumps({key: output["Value"] for key, output in template["Outputs"].items()})
    code = "import json, sys; from trainium_cdk import outputs; print(outputs.parse('S', 'us-east-1', json.loads(sys.argv[1])).model_dump_json())"
    described = machine.python("-c", code, values)
    assert described.returncode == 0, described.stderr
    (machine.folder / "cluster.json").write_text(described.stdout)
    return machine.folder / "cluster.json"


def test_its_stack_is_synthesised(cluster: Path) -> None:
    found = json.loads(cluster.read_text())
    assert (found["engine"], found["machine"], found["fleets"][0]["queue"]) == ("process", "desk", "slots")


def test_jobs_are_submitted_and_followed(machine: Machine, cluster: Path) -> None:
    (machine.folder / "hello.sh").write_text("#!/bin/bash\necho begun; sleep 1; echo $1\n")
    id = machine.trn("submit", "hello.sh", "--cluster", str(cluster), "--token", "a1", "--", "done").strip()
    assert id == "hello-a1"
    assert machine.trn("logs", "-f", id, "--cluster", str(cluster)) == "begun\ndone\n"
    assert "COMPLETED" in machine.trn("list", "--cluster", str(cluster))
    assert json.loads(machine.trn("status", id, "--cluster", str(cluster), "--json"))["ok"] is True
    again = machine.python(
        "-m", "trainium_cdk.cli", "submit", "hello.sh", "--cluster", str(cluster), "--token", "a1", "--", "done"
    )
    assert "already submitted" in again.stderr
    sleeper = machine.folder / "sleep.sh"
    sleeper.write_text("sleep 1000\n")
    id = machine.trn("submit", str(sleeper), "--cluster", str(cluster)).strip()
    assert "CANCELLED" in machine.trn("cancel", id, "--cluster", str(cluster))


def test_commands_for_another_engine_name_its_stack(machine: Machine, cluster: Path) -> None:
    done = machine.python("-m", "trainium_cdk.cli", "kubeconfig", "--cluster", str(cluster))
    assert done.returncode == 1
    assert "this is for Kubernetes, but stack S runs processes. Name another (--stack TrnEksStack)" in done.stderr
