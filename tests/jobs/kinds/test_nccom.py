"""The smoke test: what it reads from nccom-test's tables, and its report on a real Slurm about nodes with one defect each."""

from __future__ import annotations

import re

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.sent.nccom import COMMAND, Row, Settings, device_indices, rows, verdict
from trainium_cdk.jobs import LocalTransport, Nccom, Script, SlurmBackend

HEAD = "   size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)    busbw(GB/s)\n"
OLD_HEAD = "   size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)\n"
GOOD = (
    HEAD + "  1048576   262144   fp32   1328.5   0.74   1.45\n1073741824   268435456   fp32   41806   23.92   47.09\n"
)
FAILURE = OLD_HEAD + "  33554432    Failure running neuron-bench - log file /tmp/x.log\n1 errors found - test failed\n"
TRN1 = Settings(devices=16, cores=32, efa=8, published=47.09, source="the guide", least=35.3)
UNKNOWN = Settings(devices=16, cores=64, efa=16)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (GOOD + "Avg bus bandwidth:\t24.2GB/s\n", [Row(1 << 20, 1.45), Row(1 << 30, 47.09)]),
        (OLD_HEAD + "33554432        33554432    uint8         768          40.69          40.69\n", [Row(1 << 25, 40.69)]),
        (HEAD.rstrip() + "    algorithm\n 4  1  fp32  299.91  0.00  0.01  mesh\n", [Row(4, 0.01)]),
        (HEAD.replace("time:avg(us)", "time:avg(us)  time:p99(us)") + "1024 256 fp32 10.0 12 0.10 0.09\n", [Row(1024, 0.09)]),
        (FAILURE, [Row(1 << 25, None, "Failure running neuron-bench - log file /tmp/x.log")]),
        ("Neuron DKMS Driver is not running!\n", []),
        ("1048576 262144 fp32 1 2 3\n", []),  # no table
    ],
)  # fmt: skip
def test_tables_of_nccom_test(output: str, expected: list[Row]) -> None:
    assert list(rows(output)) == expected


@pytest.mark.parametrize(
    ("code", "output", "settings", "measured", "broken"),
    [
        (0, GOOD, TRN1, "1,073,741,824 bytes over 64 NeuronCores: 47.09 GB/s bus bandwidth (published: 47.09 GB/s, the guide)", ""),
        (0, GOOD, UNKNOWN, "47.09 GB/s bus bandwidth (no published value)", ""),
        (0, GOOD.replace("47.09", "20.5"), TRN1, "20.5 GB/s", "slow: 20.5 GB/s bus bandwidth, at least 35.3 GB/s were expected"),
        (1, FAILURE, TRN1, "", "all-reduce of 33,554,432 bytes: Failure running neuron-bench - log file /tmp/x.log"),
        (1, "Neuron DKMS Driver is not running!\n\n", TRN1, "", "failed with exit code 1: Neuron DKMS Driver is not running!"),
        (124, "nccom-test did not end within 900 s", TRN1, "", "exit code 124: nccom-test did not end within 900 s"),
        (1, GOOD, TRN1, "", "nccom-test failed with exit code 1"),
        (0, "", TRN1, "", "exit code 0: it printed nothing"),
    ],
)  # fmt: skip
def test_verdicts(code: int, output: str, settings: Settings, measured: str, broken: str) -> None:
    found, problems = verdict(code, output, settings, 64)
    assert measured in "".join(found)
    assert bool(measured) == bool(found)
    assert broken in "".join(problems)
    assert bool(broken) == bool(problems)


def test_devices_are_found_however_the_listing_is_nested() -> None:
    """Up to Neuron 2.33 a list, later an object."""
    flat = [{"neuron_device": 0, "nc_count": 2}, {"neuron_device": 1, "nc_count": 2}]
    assert device_indices(flat) == device_indices({"instance": {"devices": flat}}) == {0, 1}


@pytest.mark.parametrize(
    ("job", "kind", "least", "note"),
    [
        (Nccom(nodes=2), "trn1.32xlarge", '"least": 35.3', ""),
        (Nccom(nodes=2, min_bandwidth=50), "trn1.32xlarge", '"least": 50.0', ""),
        (Nccom(nodes=3), "trn1.32xlarge", "", "no bus bandwidth is published for 3 x trn1.32xlarge"),
        (Nccom(nodes=2), "trn2.48xlarge", "", "Give --min-bandwidth to set a limit"),
        (Nccom(nodes=2, min_bandwidth=9), "trn2.48xlarge", '"least": 9.0', "the test reports what it measures"),
    ],
)
def test_expected_results(job: Nccom, kind: str, least: str, note: str) -> None:
    """Only a figure that was published for the same nodes, or the user's own."""
    fitted = plan(job, make_cluster(fleet(kind)))
    text = str(job.program(fitted).words)
    assert ('"least"' in text, least in text) == (bool(least), True)
    assert ("\n".join(fitted.notes).count(note) if note else not fitted.notes) == 1


def test_the_largest_size_is_the_published_one() -> None:
    """1 MB times four, again and again, ends at 1 GB."""
    options = dict(zip(COMMAND[:10:2], COMMAND[1:10:2], strict=True))
    assert (options["-b"], options["-e"], options["-f"], options["-n"]) == ("1MB", "1GB", "4", "50")


@pytest.mark.parametrize(
    ("nodes", "broken", "last_lines"),
    [
        (1, "", [r"32 NeuronCores: 47\.\d+ GB/s bus bandwidth \(no published value\)", "nothing is broken"]),
        (2, "", [r"64 NeuronCores: 47\.\d+ GB/s .*published: 47\.09 GB/s, .*user guide", "nothing is broken"]),
        (2, "1:device=7 0:efa", [r"BROKEN: node 0 \(compute1-dy-trn-1\): 0 of 8 EFA interfaces", r"BROKEN: node 1 \(compute1-dy-trn-2\): 15 of 16 Neuron devices; missing: 7"]),
        (2, "bandwidth=20", [r"64 NeuronCores: 19\.\d+ GB/s", r"BROKEN: the all-reduce is slow: 19\.\d+ GB/s bus bandwidth, at least 35.3 GB/s were expected"]),
        (2, "1:bench", ["BROKEN: all-reduce of 1,048,576 bytes: Failure running neuron-bench - log file"]),
    ],
    ids=["one-node", "healthy", "device-and-efa", "slow", "bench"],
)  # fmt: skip
def test_on_slurm(backend: SlurmBackend, nodes: int, broken: str, last_lines: list[str]) -> None:
    job = backend.submit(Nccom(nodes=nodes, env={"TRN_SANDBOX_BROKEN": broken}))
    ended = backend.wait(job.id, 600)
    log = b"".join(chunk.data for chunk in backend.logs(job.id)).decode()
    assert ended.ok == ("nothing is broken" in last_lines), log
    own = [line for line in log.splitlines() if line.startswith("0: ")]  # srun itself comes last
    for pattern, line in zip(last_lines, own[-len(last_lines) :], strict=True):
        assert re.search(pattern, line), log


def test_a_driver_that_is_incompatible_with_the_runtime_is_reported(backend: SlurmBackend) -> None:
    job = backend.submit(Nccom(env={"TRN_SANDBOX_RUNTIME": "2.32.31.0"}))
    assert not backend.wait(job.id, 600).ok
    log = b"".join(chunk.data for chunk in backend.logs(job.id)).decode()
    assert re.search(
        r"BROKEN: node 0 \(\S+\): driver 2\.26\.10\.0 and runtime 2\.32\.31\.0 are not compatible: .*2\.26 or earlier",
        log,
    ), log


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"TRN_SANDBOX_RUNTIME": "2.32.31.0"}, r"driver 2\.26\.10\.0 and runtime 2\.32\.31\.0 are not compatible: .*Deploy with another bootstrap"),
        ({"TRN_SYS_ROOT": "/nowhere"}, "the Neuron driver is not loaded"),
    ],
)  # fmt: skip
def test_every_kind_is_refused_on_a_node_with_incompatible_versions(
    slurm: LocalSlurm, env: dict[str, str], message: str
) -> None:
    """The nodes get the submission's environment."""
    backend = SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env={**slurm.node_env(), **env}, interval=0.2))
    sent = backend.submit(Script(filename="run.sh", content=b"#!/bin/bash\necho trained\n"))
    assert backend.wait(sent.id, 600).stages[0].exit_code == 64
    log = b"".join(chunk.data for chunk in backend.logs(sent.id)).decode()
    assert re.search(message, log), log
    assert "trained" not in log
