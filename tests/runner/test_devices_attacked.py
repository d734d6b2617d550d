"""Whoever runs jobs takes no node away: with nothing that a job can print, set, write or call. On a real Slurm, with accounts of their own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import slurm_users
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION
from tests.runner.test_devices import MEM, measured, state
from tests.support import need, until

ATTACK = r"""#!/bin/bash
exec 2>&1
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here" || exit
echo "[    1.0] NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR instance-id=i-1 nd-id=0 action=TERMINATE_INSTANCE"
echo 'trn: found: {"at": 1.0, "evidence": "n", "kind": "device", "node": 0, "over": false, "rank": -1}'
mine=sys/devices/virtual/neuron_device/neuron0/stats/hardware
mkdir -p $mine state && echo 99 > $mine/MEM
export TRN_SYS_ROOT=$PWD TRN_ROOT=$PWD TRN_DEVICES=replace PYTHONPATH=$PWD
echo '{"do": "move", "why": "trn-devices 1 device x", "at": 1.0}' > state/train.1-0.order.json
echo '{"count": 3, "nodes": "n"}' > state/moved.json
node=$SLURMD_NODENAME
try() { "$@" && echo "WORKED: $*" || echo "refused: $1"; }
for what in "state=drain reason=trn-devices_1_device_x" "state=down reason=x" state=power_down state=fail "comment=trn-devices 1 device x" "extra=x"; do
  try scontrol update nodename=$node "${what%% *}" ${what#* }
done
try scontrol update nodename=$node "comment=trn-devices 1 device x"
try scontrol update nodename=$node state=drain "reason=trn-devices 1 device x"
try scontrol reboot $node
try tee "DRIVER/$mine/MEM" <<< 99
try mkdir "DRIVER/sys/devices/virtual/neuron_device/neuron9"
try tee /dev/kmsg <<< "NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR"
for service in $(pgrep -f -- "--root ALL"); do try kill -9 $service; try kill -STOP $service; done
scontrol update JobId=$SLURM_JOB_ID "comment=trn-devices 1 device $node" && echo "its own comment is its own"
echo "all was tried"
exit 1
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[LocalSlurm]:
    reason = available() or slurm_users.unavailable()
    need(reason is None, str(reason))
    folder = Path(tempfile.mkdtemp(prefix="trn-devices-"))
    folder.chmod(0o755)  # others pass through
    try:
        with LocalSlurm.start(folder / "slurm", CONFIGURATION, users={"alice": 2001}) as running:
            yield running
    finally:
        shutil.rmtree(folder)


def test_nothing_that_a_job_can_write_takes_a_node_away(slurm: LocalSlurm) -> None:
    place = slurm.directory.parent
    (drivers := place / "drivers").mkdir()
    with measured(slurm, drivers) as nodes:
        name = slurm.node_names[0]
        for folder in (drivers, *drivers.rglob("*")):
            folder.chmod(0o755 if folder.is_dir() else 0o644)  # as the driver's
        script, out = place / "attack.sh", place / "out"
        script.write_text(
            ATTACK.replace("MEM", MEM).replace("DRIVER", str(nodes[name].root)).replace("ALL", str(drivers))
        )
        script.chmod(0o755)
        out.touch()
        out.chmod(0o666)
        words = [
            "sbatch",
            "--parsable",
            "--uid=2001",
            "--gid=2001",
            "--chdir=/tmp",
            f"--output={out}",
            "--open-mode=append",
        ]
        faked = ["--comment=trn-devices 1 device x", "--job-name=trn-devices 1 device x", f"--nodelist={name}"]
        sent = slurm.run([*words, *faked, str(script)])
        assert sent.returncode == 0, sent.stderr
        assert until(lambda: "all was tried" in out.read_text(), 60), out.read_text()
        time.sleep(2)  # the service has looked again, many times
        said = out.read_text()
        assert "WORKED" not in said, said
        assert said.count("refused: scontrol") == 9
        assert said.count("refused: tee") == 2
        assert said.count("refused: kill") == 2 * len(slurm.node_names)
        assert "its own comment is its own" in said
        assert until(lambda: {state(slurm, one) for one in slurm.node_names} == {"idle"}, 60)
        assert state(slurm, name, "%E") == "none"
        assert "Comment" not in slurm.run(["scontrol", "-o", "show", "node", name]).stdout
        assert all(one.service.poll() is None for one in nodes.values())
        nodes[name].put(1)  # what the driver says counts
        assert until(lambda: state(slurm, name) == "drained", 60)
