"""What root measures on a compute node, and what it makes of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.test_users import BARE
from tests.support import swept
from trainium_cdk.description.catalog import device_counters
from trainium_cdk.description.node.scripts import scripts_dir

FILE = Path(str(scripts_dir())) / "lib/devices.py"
NAMES = list(device_counters())
MEM, SRAM = "stats/hardware/mem_ecc_uncorrected", "stats/hardware/sram_ecc_uncorrected"


def module() -> Any:
    spec = importlib.util.spec_from_file_location("devices", FILE)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


devices = module()


def put(root: Path, counters: Mapping[str, object]) -> None:
    """What the driver shows."""
    for at, value in counters.items():
        file = root / devices.DEVICES / at
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ({f"neuron0/{MEM}": 0}, {f"neuron0/{MEM}": 0}, ""),
        ({f"neuron3/{MEM}": 0, f"neuron3/{SRAM}": 0}, {f"neuron3/{MEM}": 2}, f"neuron3/{MEM} 0 to 2"),
        ({f"neuron0/{SRAM}": 5}, {f"neuron0/{SRAM}": 5}, ""),  # since before it began
        ({f"neuron0/{SRAM}": 5}, {f"neuron0/{SRAM}": 6}, f"neuron0/{SRAM} 5 to 6"),
        ({f"neuron0/{SRAM}": 5}, {f"neuron0/{SRAM}": 0}, ""),  # the driver was loaded again
        ({}, {f"neuron1/errors/{NAMES[0]}/total": 1}, f"neuron1/errors/{NAMES[0]} 0 to 1"),  # in another driver's folders
        ({f"neuron0/{MEM}": 0}, {f"neuron0/{MEM}": "no number"}, ""),
        ({}, {"neuron0/neuron_core0/stats/status/hw_error/total": 9}, ""),  # of the runtime: a program counts it
        ({}, {"neuron0/a/b/c/d/e/f/g/mem_ecc_uncorrected": 9}, ""),
    ],
)  # fmt: skip
def test_a_device_error_is_a_counter_that_rises(
    tmp_path: Path, first: dict[str, int], then: dict[str, object], told: str
) -> None:
    put(tmp_path, first)
    watch = devices.Watch(tmp_path, NAMES, [])
    watch.look(10.2)
    assert watch.text == ""
    put(tmp_path, then)
    watch.look(20.0)
    watch.look(30.0)
    assert watch.text == (f"trn-devices 20 device {told}" if told else "")
    assert (watch.device is not None) is bool(told)


def test_a_device_that_counts_from_0_again(tmp_path: Path) -> None:
    put(tmp_path, {f"neuron0/{MEM}": 5})
    watch = devices.Watch(tmp_path, NAMES, [])
    for value, told in ((0, ""), (1, f"trn-devices 2 device neuron0/{MEM} 0 to 1"), (0, f"trn-devices 2 device neuron0/{MEM} 0 to 1")):  # fmt: skip
        put(tmp_path, {f"neuron0/{MEM}": value})
        watch.look(2.0)
        assert watch.text == told
    assert watch.first == ""


@pytest.mark.parametrize(("total", "available", "percent"), [(1000, 20, 98), (1000, 1000, 0), (0, 0, None)])
def test_how_full_the_memory_is(total: int, available: int, percent: int | None) -> None:
    assert devices.memory(f"MemTotal:  {total} kB\nMemFree: 1 kB\nMemAvailable:  {available} kB\n") == percent
    assert devices.memory("") is None


def test_disks_and_memory_are_told_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    level = {"/": 10.0, "/efs": 10.0}
    monkeypatch.setattr(devices, "used", level.get)
    watch = devices.Watch(tmp_path, NAMES, ["/", "/efs", "/gone"])
    (tmp_path / "proc").mkdir()
    meminfo = tmp_path / "proc/meminfo"
    for at, disks, free, told in (
        (1.0, {"/efs": 98.0}, 500, ["1 disk /efs is full to 98 % and more"]),
        (2.0, {"/": 99.0, "/efs": 96.0}, 5, ["2 disk / is full to 98 % and more", "1 disk /efs is full to 98 % and more", "2 memory its memory is full to 98 % and more"]),
        (3.0, {"/": 94.0}, 500, ["1 disk /efs is full to 98 % and more"]),
        (4.0, {"/efs": 20.0}, 500, []),
    ):  # fmt: skip
        level.update(disks)
        meminfo.write_text(f"MemTotal: 1000 kB\nMemAvailable: {free} kB\n")
        watch.look(at)
        assert watch.text == ("trn-devices " + " | ".join(told) if told else "")
        assert watch.device is None


def test_a_line_of_the_kernels_log_is_told_and_no_evidence(tmp_path: Path) -> None:
    """Any program that has a device can write one, by the driver's PRINTK."""
    (tmp_path / "dev").mkdir()
    log = tmp_path / "dev/kmsg"
    log.write_text("NEURON_HW_ERR=DMA_ERROR before\n")
    watch = devices.Watch(tmp_path, NAMES, [])
    watch.look(1.0)
    assert watch.text == ""
    with log.open("a") as more:
        more.write("2026 NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR nd-id=0; reason=x state=down\nNEURON_HW_ERR=$(reboot)\n")
    watch.look(2.0)
    assert watch.text == "trn-devices 2 log the kernel's log has NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR"
    assert watch.device is None


NODES = """NodeName=q-dy-1 Arch=x86_64 NodeAddr=10.0.0.4 NodeHostName=q-dy-1 Port=0 State=IDLE
NodeName=pcs-1 NodeAddr=10.0.0.5 NodeHostName=ip-10-0-0-5 Port=0 State=IDLE Reason=NodeName=q-dy-9
NodeName=a NodeAddr=10.0.0.6 NodeHostName=same
NodeName=b NodeAddr=10.0.0.7 NodeHostName=same
"""


@pytest.mark.parametrize(
    ("host", "addresses", "name"),
    [("q-dy-1", [], "q-dy-1"), ("ip-10-0-0-5", [], "pcs-1"), ("x", ["172.17.0.1", "10.0.0.5"], "pcs-1"), ("same", [], ""), ("x", [], "")],
)  # fmt: skip
def test_a_nodes_own_name(host: str, addresses: list[str], name: str) -> None:
    """Another one's is never taken."""
    assert devices.own_name(NODES.replace(" Reason=NodeName=q-dy-9", ""), host, addresses) == name


@pytest.mark.parametrize("system", swept(["ubuntu-22.04", "ubuntu-24.04", "amzn-2023"], "ubuntu-24.04"))
def test_a_compute_node_has_the_service(new_node: NewNode, system: str) -> None:
    """With the system's own Python, and a Slurm that only takes what it is told. What systemd would start is started here."""
    node = new_node(system, **BARE, TRN_OS_PACKAGES="", TRN_MOUNTS="", TRN_DEVICE_COUNTERS=",".join(NAMES))
    node.write(
        "/opt/slurm/bin/scontrol",
        '#!/bin/sh\necho "$@" >>/root/asked\necho NodeName=n-1 NodeHostName=$(uname -n) NodeAddr=x\n',
        0o755,
    )
    done = node.configure("TRN_NODE_ROLE=compute")
    assert done.code == 0, done.err
    told = node.read("/var/log/systemctl").splitlines()
    assert [line for line in told if "devices" in line] == ["enable trn-devices.service", "restart trn-devices.service"]
    unit = node.read("/etc/systemd/system/trn-devices.service")
    [start] = [line.removeprefix("ExecStart=").split() for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert start[2:] == ["/opt/trn-devices/devices.py", "replace", "drain", ",".join(NAMES)]
    once = node.run("env", "PATH=/opt/slurm/bin:/usr/bin:/bin", *start, "--looks", "1", "--every", "0")
    assert once.code == 0, once.err
    asked = node.read("/root/asked").splitlines()
    assert asked[0] == "-o show node"
    assert asked[1].startswith("update nodename=n-1 comment=")
    assert node.configure("TRN_NODE_ROLE=compute").code == 0
    assert node.status()["changes"] == []


def test_what_the_service_is_told(new_node: NewNode) -> None:
    """On AWS PCS, Slurm itself ends the node. Nothing else than names reaches the unit."""
    node = new_node(**BARE, TRN_OS_PACKAGES="", TRN_MOUNTS="", TRN_DEVICE_COUNTERS="a_b")
    assert node.configure("TRN_NODE_ROLE=compute", "TRN_DEVICES=tell", "TRN_SLURM_BIN=/opt/aws/pcs/slurm/bin").code == 0
    unit = node.read("/etc/systemd/system/trn-devices.service")
    assert "devices.py tell power_down_asap a_b\n" in unit
    assert "PATH=/opt/aws/pcs/slurm/bin:" in unit
    for wrong in (
        "TRN_DEVICES=reboot",
        "TRN_DEVICE_COUNTERS=a b",
        "TRN_DEVICE_COUNTERS=../../etc/x",
        "TRN_DEVICE_COUNTERS=a;b",
    ):
        assert "is not" in node.configure(wrong).err
