"""A device that breaks under a training on a real Slurm: root takes the node away, and the job goes on with another one. Seconds stand for minutes."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests import command
from tests.jobs.conftest import fleet, make_cluster
from tests.jobs.conftest import slurm as slurm
from tests.runner.stages import Jobs, Sent, shell
from tests.runner.test_hangs import ends_as_it_would, kinds, now, told, train
from tests.runner.test_hangs import jobs as jobs
from tests.support import begins_again, file_system, fill, until
from trainium_cdk.description.node.scripts import scripts_dir
from trainium_cdk.runner import records, slurm_nodes
from trainium_cdk.runner.spec import HealthRules, StageSpec
from trainium_cdk.runner.work import health

MEM = "mem_ecc_uncorrected"
FAST = HealthRules(every=0.4, least=30.0)


class Driver:
    """The driver's files of one node, and root's service that reads them. The service itself is what nodes run."""

    def __init__(self, slurm: LocalSlurm, root: Path, node: str, *action: str, disks: bool = False) -> None:
        self.root, self.node, self.disk = root, node, root / "disk"
        for device in (0, 1):
            self.put(0, device)
        self.memory(available=500)
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev/kmsg").touch()
        slurm.run(["scontrol", "update", f"nodename={node}", "comment=of an earlier instance"])
        words = (*(action or ("replace", "drain")), MEM, "--node", node, "--root", str(root), "--every", "0.2")
        words += ("--disks", str(self.disk)) if disks else ()
        self.service = subprocess.Popen(
            [sys.executable, "-I", Path(str(scripts_dir())) / "lib/devices.py", *words], env=slurm.node_env()
        )

    def begins(self, slurm: LocalSlurm) -> None:
        """Wait until it has looked for the first time, and has emptied what an earlier instance of this name has left."""
        assert until(lambda: "Comment=" not in slurm.run(["scontrol", "-o", "show", "node", self.node]).stdout, 60)

    def put(self, count: int, device: int = 1) -> None:
        file = self.root / f"sys/devices/virtual/neuron_device/neuron{device}/stats/hardware/{MEM}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{count}\n")

    def memory(self, available: int) -> None:
        """Of 1,000 kB."""
        file = self.root / "proc/meminfo"
        file.parent.mkdir(exist_ok=True)
        (part := file.with_name("part")).write_text(f"MemTotal: 1000 kB\nMemAvailable: {available} kB\n")
        part.replace(file)

    def end(self) -> None:
        self.service.terminate()
        self.service.wait()


@contextlib.contextmanager
def measured(slurm: LocalSlurm, root: Path, *action: str, disks: bool = False) -> Iterator[dict[str, Driver]]:
    """All nodes have the service, which also looks at a disk of its own where `disks` is set; afterwards all can be used again."""
    found = {name: Driver(slurm, root / name, name, *action, disks=disks) for name in slurm.node_names}
    try:
        for one in found.values():
            one.begins(slurm)
        yield found
    finally:
        for one in found.values():
            one.end()
        for name in found:
            slurm.run(["scontrol", "update", f"nodename={name}", "comment="])
            if "drain" in state(slurm, name):
                slurm.run(["scontrol", "update", f"nodename={name}", "state=resume"])


def state(slurm: LocalSlurm, node: str, field: str = "%T") -> str:
    return slurm.run(["sinfo", "-h", "-N", "-a", "-n", node, "-o", field]).stdout.strip()


def on(slurm: LocalSlurm, sent: Sent) -> list[str]:
    """The nodes of its last attempt."""
    now = sent.state()
    assert now
    return slurm.run(["scontrol", "show", "hostnames", now.nodes]).stdout.split()


def begins_soon(slurm: LocalSlurm, sent: Sent, attempt: int) -> None:
    assert begins_again(slurm, sent.numbers["train"], lambda: (now := sent.state()) and now.attempt >= attempt), (
        sent.log()
    )


def test_a_device_error_takes_the_node_away_and_the_job_goes_on_with_another(jobs: Jobs, tmp_path: Path) -> None:
    """Drained with the reason, started again without it, from the newest checkpoint: no step runs twice at a time."""
    slurm = jobs.slurm
    with measured(slurm, tmp_path) as nodes:
        sent = train(jobs, FAST, SLOW="0.3")
        sent.says("step 12/30")
        first = on(slurm, sent)
        nodes[first[1]].put(2)
        sent.says("a node is broken: Slurm starts the stage again, on others")
        begins_soon(slurm, sent, 1)
        second = on(slurm, sent)
        assert first[1] not in second
        assert state(slurm, first[1]).startswith("drain")
        assert state(slurm, first[1], "%E").startswith("trn-devices 1")
        assert sent.ended().code == 0, sent.log()
        assert sent.left() == "COMPLETED"
        [error, *_] = [one for one in told(sent) if one.kind == "device"]
        assert error.evidence == f"{first[1]}: neuron1/stats/hardware/{MEM} 0 to 2"
        assert error.node == 1
        assert "restarted" in kinds(sent)
        steps = [int(one) for one in re.findall("begins after step (.*)", sent.log())]
        last = max(int(one.stem) for one in (sent.folder / "meeting-0").iterdir())
        assert steps[:2] == [0, 0], sent.log()
        assert steps[2:] == [last // 5 * 5] * 2 or steps[2:] == [(last - 1) // 5 * 5] * 2, (last, sent.log())
        begun = [line.split() for line in (sent.folder / "begun").read_text().splitlines()]
        assert sorted((a, n) for a, n, *_ in begun) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
        assert slurm_nodes.moved(sent.folder).nodes == first[1]


def test_a_program_that_fails_before_root_has_seen_why(jobs: Jobs, tmp_path: Path) -> None:
    """It speaks of a device error, so its end waits for what root finds. What it compiled for is not waited for either."""
    slurm = jobs.slurm
    fails = shell("[ $SLURM_RESTART_COUNT ] || { echo NRT_EXEC_HW_ERR_HBM_UE; exit 3; }")
    with measured(slurm, tmp_path) as nodes:
        compiled = StageSpec("precompile", 1, shell("true"))
        sent = jobs.submit(jobs.job(compiled, StageSpec("train", 1, fails), health=FAST))
        sent.says("0: NRT_EXEC_HW_ERR_HBM_UE")
        [first] = on(slurm, sent)
        nodes[first].put(1)
        sent.says("a node is broken: Slurm starts the stage again, on others")
        begins_soon(slurm, sent, 1)
        assert sent.ended().code == 0
        assert first not in sent.ended().nodes
        assert sent.left() == "COMPLETED"


def test_a_program_that_fails_of_itself_is_not_started_again(jobs: Jobs, tmp_path: Path) -> None:
    """Whatever it prints: its words are only a reason to wait for a while."""
    with measured(jobs.slurm, tmp_path):
        began = time.monotonic()
        sent = jobs.train(shell("echo ValueError: shape; exit 3"), health=FAST)
        assert (sent.ended().code, sent.left()) == (3, "FAILED")
        assert time.monotonic() - began < slurm_nodes.WAIT_SECONDS
        sent = jobs.train(
            shell("echo NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR action=TERMINATE_INSTANCE; exit 3"), health=FAST
        )
        assert (sent.ended().code, sent.left()) == (3, "FAILED")
        assert {state(jobs.slurm, name) for name in jobs.slurm.node_names} == {"idle"}


def test_three_nodes_in_a_row_are_the_programs_fault(jobs: Jobs, tmp_path: Path) -> None:
    slurm = jobs.slurm
    with measured(slurm, tmp_path) as nodes:
        sent = train(jobs, FAST, nodes=1, STEPS="600", AT="1", FAULT="hang", BAD="0")
        broken = []
        for attempt in range(slurm_nodes.IN_A_ROW):
            begins_soon(slurm, sent, attempt)
            broken += on(slurm, sent)
            nodes[broken[-1]].put(1)
            if attempt < slurm_nodes.IN_A_ROW - 1:
                assert until(lambda: sent.state().attempt == attempt and sent.state().state == records.ENDED, 60)  # type: ignore[union-attr]  # noqa: B023
        assert (sent.left(), sent.ended().code) == ("FAILED", 66), sent.log()
        assert len(set(broken)) == slurm_nodes.IN_A_ROW
        failed = records.failure(sent.folder, "train")
        assert failed is not None
        assert failed.last.startswith(
            f"3 nodes in a row had a device error ({', '.join(broken)}): its program is at fault. It was a device error"
        )


def test_what_is_only_told(jobs: Jobs, tmp_path: Path) -> None:
    """A device error, where the environment says so; a line of a kernel's log and a full memory always. The training ends as it would."""
    slurm = jobs.slurm
    with measured(slurm, tmp_path, "tell", "drain") as nodes:
        sent = train(jobs, FAST, FAULT="pause", AT="3")
        sent.says("1: step 2/30")
        bad, full = (nodes[name] for name in on(slurm, sent))
        bad.put(1)
        assert now(sent, "device").evidence == f"{bad.node}: neuron1/stats/hardware/{MEM} 0 to 1"
        with (full.root / "dev/kmsg").open("a") as log:
            log.write("4,1,2,-;NEURON_HW_ERR=DMA_ERROR instance-id=i-1\n")
        line = now(sent, "log")
        assert (line.node, line.evidence) == (1, f"{full.node}: the kernel's log has NEURON_HW_ERR=DMA_ERROR")
        assert line.text.startswith("has a hardware error in a kernel's log since 20")
        full.memory(available=20)
        memory = now(sent, "memory")
        assert (memory.node, memory.evidence) == (1, f"{full.node}: its memory is full to 98 % and more")
        assert memory.text.startswith("has a full memory since 20")
        (tmp_path / "cluster.json").write_text(make_cluster(fleet(nodes=4)).model_dump_json())
        words = ["nodes", "--all", "--cluster", tmp_path / "cluster.json", "--local"]
        rows = command.trn(words, slurm.node_env()).stdout.splitlines()
        for node, text in ((bad, "has a device error since 20"), (full, "has a full memory since 20")):
            assert any(text in row for row in rows if node.node in row), rows
        full.memory(available=500)
        assert until(lambda: kinds(sent)[-1] == "memory over", 60), sent.log()
        ends_as_it_would(sent)
        assert kinds(sent) == ["device", "log", "memory", "memory over"]
        assert {state(slurm, name) for name in slurm.node_names} <= {"idle", "completing"}


def test_disks_that_are_really_full_are_told_until_there_is_room(jobs: Jobs, tmp_path: Path) -> None:
    """Of several nodes at a time: each is told, and when it is over. No node is taken away, and the training ends as it would."""
    slurm, rules = jobs.slurm, HealthRules("restart", every=0.4, least=120.0)
    with contextlib.ExitStack() as stack:
        for name in slurm.node_names:
            stack.enter_context(file_system(tmp_path / name / "disk", "1m"))
        nodes = stack.enter_context(measured(slurm, tmp_path, disks=True))
        sent = train(jobs, rules, FAULT="pause", AT="3")
        sent.says("1: step 2/30")
        first, second = (nodes[name] for name in on(slurm, sent))
        full = [f"{one.node}: {one.disk} is full to 98 % and more" for one in (first, second)]

        def tells(*evidence: str) -> None:
            assert until(lambda: [one.evidence for one in health.found(sent.folder, "train")] == list(evidence), 60), (
                health.found(sent.folder, "train")
            )

        fill(second.disk)
        tells(full[1])
        assert now(sent, "disk").text.startswith("has a full disk since 20")
        fill(first.disk)
        tells("; ".join(full))
        slurm.kill_controller(save=True)  # Slurm does not answer: what was so still is
        time.sleep(slurm_nodes._SECONDS + 3)
        slurm.start_controller()
        tells("; ".join(full))
        (second.disk / "filler").unlink()
        tells(full[0])
        (first.disk / "filler").unlink()
        tells()
        ends_as_it_would(sent)
        assert kinds(sent) == ["disk", "disk", "disk", "disk over"]
        assert {state(slurm, name) for name in slurm.node_names} <= {"idle", "completing"}


@pytest.mark.parametrize(
    ("said", "lost", "kinds"),
    [
        (("idle", "", ""), False, []),
        (("mixed+drain", "trn-devices 10 device neuron0 0 to 1", "trn-devices 10 device neuron0 0 to 1"), True, ["device"]),
        (("idle+cloud+drain+power_drain", "trn-devices 10 device x", "trn-devices 10 device x"), True, ["device"]),
        (("mixed", "trn-devices 10 device x", "trn-devices 10 device x"), False, ["device"]),  # given to jobs again
        (("mixed+drain", "trn-devices 10 device x", "a person: works on it"), False, ["device"]),
        (("mixed+drain", "", "trn-devicesx 10"), False, []),
        (("mixed", "trn-devices 1 disk / is full | 2 memory full | 3 rm -rf | x device y", ""), False, ["disk", "memory"]),
        (("mixed", "of another: trn-devices 1 device x", ""), False, []),
    ],
)  # fmt: skip
def test_what_slurm_has_of_a_node(said: tuple[str, str, str], lost: bool, kinds: list[str]) -> None:
    found = slurm_nodes.read(3, "n-1", *said)
    assert (found.lost, [one.kind for one in found.findings]) == (lost, kinds)
    assert all(one.node == 3 and one.evidence.startswith("n-1: ") for one in found.findings)


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("CapWatts=n/a Reason=trn-devices 1795816028 device neuron1/x 0 to 2 [root@2026-11-27T21:43:07] Comment=trn-devices 1795816028 device neuron1/x 0 to 2", "has a device error since 2026-11-27 21:47 UTC: neuron1/x 0 to 2"),
        ("CapWatts=n/a Comment=trn-devices 1795816028 disk / is full | 1795816028 log y", "has a full disk since 2026-11-27 21:47 UTC: / is full; has a hardware error in a kernel's log since 2026-11-27 21:47 UTC: y"),
        ("CapWatts=n/a Comment=trn-devices 1795816028 disk / is full Reason=a person works on it [root@2026-11-27T21:43:07]", "a person works on it"),
        ("CapWatts=n/a Comment=of a person", ""),
        ("CapWatts=n/a Reason=(Code:InsufficientInstanceCapacity)Failure when resuming nodes [root@2026-11-28T14:09:14] InstanceId=i-0abc InstanceType=trn1.32xlarge", "(Code:InsufficientInstanceCapacity)Failure when resuming nodes"),
        ("CapWatts=n/a Comment=trn-devices 1795816028 device neuron1/mem 0 to 2 InstanceId=i-0abc InstanceType=trn1.32xlarge", "has a device error since 2026-11-27 21:47 UTC: neuron1/mem 0 to 2"),
        ("CapWatts=n/a Reason=a person works on it [root@2026-11-28T14:09:14] Comment=x InstanceId=i-0def  ReservationName=pcluster-cr-1", "a person works on it"),
        ("CapWatts=n/a Comment=trn-devices 1795816028 disk / is full InstanceId=i-0def  ReservationName=pcluster-cr-1 TLSCertTokenSet=No", "has a full disk since 2026-11-27 21:47 UTC: / is full"),
    ],
)  # fmt: skip
def test_what_trn_nodes_says_of_it(rest: str, reason: str) -> None:
    node = slurm_nodes._node(f"NodeName=n-1 State=IDLE Partitions=q NodeAddr=10.0.0.4 {rest}", {})
    instance = rest.partition("InstanceId=")[2].partition(" ")[0]
    assert (node.reason, node.instance) == (reason, instance)
