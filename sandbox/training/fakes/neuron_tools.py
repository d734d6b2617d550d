"""The tools of a Trainium node, for virtual nodes: `python -m fakes.neuron_tools NAME ARGUMENTS`.

neuron-ls and fi_info list the devices of the node's instance type (TRN_SANDBOX_DEVICES). nccom-test and neuron-bench start a
process on each node, with a small mpirun that uses the given remote shell, and each reports over TCP; the bandwidth is invented.
Unknown options are rejected. TRN_SANDBOX_BROKEN injects faults, for example `1:device=7 0:efa 1:bench bandwidth=20`, with the
node's rank in front.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

NAMES = ("dpkg-query", "fi_info", "mpirun", "nccom-test", "neuron-bench", "neuron-ls", "neuron-monitor")
BANDWIDTH = 48.0
"""GB/s, for large messages."""
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KB": 1 << 10, "M": 1 << 20, "MB": 1 << 20, "G": 1 << 30, "GB": 1 << 30}
_BYTES = {"uint8": 1, "bf16": 2, "fp16": 2, "fp32": 4}
_OPERATIONS = ("all_reduce", "allr")


class Failed(Exception):
    """The tool ends with this message and exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def layout() -> tuple[str, int, int, int]:
    """(node, devices, NeuronCores of each, EFA interfaces): `<node>=<devices>x<cores>x<efa>` in TRN_SANDBOX_DEVICES, `*` for any node."""
    node = os.environ.get("SLURMD_NODENAME", "")
    for entry in os.environ.get("TRN_SANDBOX_DEVICES", "").split():
        name, _, numbers = entry.partition("=")
        if name in (node, "*"):
            devices, cores, efa = (int(n) for n in numbers.split("x"))
            return node, devices, cores, efa
    return node or "the head node", 0, 0, 0


def faults() -> dict[str, str]:
    """Injected faults of this node, or of the whole test."""
    rank, found = os.environ.get("NODE_RANK", ""), {}
    for entry in os.environ.get("TRN_SANDBOX_BROKEN", "").split():
        of, colon, fault = entry.rpartition(":")
        if not colon or of == rank:
            name, _, value = fault.partition("=")
            found[name] = value
    return found


def present() -> list[int]:
    devices, missing = layout()[1], faults().get("device")
    return [i for i in range(devices) if str(i) != missing]


def parser(name: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=name, allow_abbrev=False, add_help=False)


def neuron_ls(arguments: Sequence[str]) -> None:
    options = parser("neuron-ls")
    for short, long in (("-w", "--wide"), ("-a", "--show-all-procs"), ("-t", "--topology"), ("-j", "--json-output")):
        options.add_argument(short, long, action="store_true")
    given = options.parse_args(arguments)
    node, _, cores, _ = layout()
    found = present()
    if not found:
        raise Failed(f"neuron-ls: No neuron device found ({node} has none)")
    devices: list[dict[str, Any]] = [
        {"neuron_device": i, "bdf": f"00:{i + 16:02x}.0", "connected_to": None, "nc_count": cores, "neuron_processes": []}
        for i in found
    ]  # fmt: skip
    if given.json_output:
        print(json.dumps(devices, indent=1))
        return
    print("| NEURON | NEURON |\n| DEVICE | CORES  |")
    for device in devices:
        print(f"| {device['neuron_device']:<6} | {cores:<6} |")


_GROUPS = {"neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats"}
_SYSTEM_GROUPS = {"memory_info", "vcpu_usage", "neuron_hw_counters"}


def neuron_monitor(arguments: Sequence[str]) -> None:
    """A report each second, of the groups that the configuration names: every core is in use, by invented numbers."""
    options = parser("neuron-monitor")
    options.add_argument("-c", "--config-file", type=Path, required=True)
    config = json.loads(options.parse_args(arguments).config_file.read_text())
    wanted = {metric["type"] for runtime in config["neuron_runtimes"] for metric in runtime["metrics"]}
    of_system = {metric["type"] for metric in config["system_metrics"]}
    if unknown := (wanted - _GROUPS) | (of_system - _SYSTEM_GROUPS):
        raise Failed(f"neuron-monitor: invalid metric group {min(unknown)}")
    _, _, cores, _ = layout()
    counters = {str(i): {"neuroncore_utilization": 50.0 + i % 4} for i in range(len(present()) * cores)}
    groups: dict[str, Any] = {
        "neuroncore_counters": {"period": 1.0, "neuroncores_in_use": counters, "error": ""},
        "memory_used": {"neuron_runtime_used_bytes": {"host": 2_000_000, "neuron_device": 3_000_000_000}, "error": ""},
    }
    memory = {"memory_info": {"memory_total_bytes": 512_000_000_000, "memory_used_bytes": 64_000_000_000, "error": ""}}
    report = {name: group for name, group in groups.items() if name in wanted}
    while True:
        time.sleep(1)
        found = [{"pid": 7, "neuron_runtime_tag": "7", "error": "", "report": report}] if counters else []
        print(json.dumps({"neuron_runtime_data": found, "system_data": memory if of_system else {}}), flush=True)


def fi_info(arguments: Sequence[str]) -> None:
    options = parser("fi_info")
    options.add_argument("-p", dest="provider", choices=["efa"], required=True)
    options.add_argument("-t", dest="type", choices=["FI_EP_RDM"])
    options.parse_args(arguments)
    interfaces = 0 if "efa" in faults() else layout()[3]
    if not interfaces:
        raise Failed("fi_getinfo: -61 (No data available)", 61)
    for fabric in ("efa-direct", "efa"):
        for i in range(interfaces):
            print(f"provider: efa\n    fabric: {fabric}\n    domain: rdmap{16 + i}s27-rdm\n    type: FI_EP_RDM")


def dpkg_query(arguments: Sequence[str]) -> None:
    options = parser("dpkg-query")
    options.add_argument("-W", dest="show", action="store_true", required=True)
    options.add_argument("-f", dest="format", choices=["${Version}\\n"], required=True)
    options.add_argument("package")
    package = options.parse_args(arguments).package
    if package != "aws-neuronx-runtime-lib":
        raise Failed(f"dpkg-query: no packages found matching {package}")
    print(f"{os.environ['TRN_SANDBOX_RUNTIME']}-0a1b2c3d4")


def mpirun(arguments: Sequence[str]) -> None:
    options = parser("mpirun")
    options.add_argument("--host", required=True)
    options.add_argument("-np", type=int, required=True)
    options.add_argument("command", nargs=argparse.REMAINDER)
    given = options.parse_args(arguments)
    hosts = given.host.split(",")
    if os.environ.get("OMPI_MCA_plm") != "rsh" or "SLURM_JOB_ID" in os.environ:  # noqa: SIM112
        raise Failed("mpirun: within Slurm it would start its daemons with srun, which has no free resources here")
    shell = shlex.split(os.environ.get("OMPI_MCA_plm_rsh_agent", "ssh"))  # noqa: SIM112
    here = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    if len(hosts) != given.np:
        raise Failed(f"mpirun: {given.np} processes, but {len(hosts)} hosts")
    started = [
        subprocess.Popen(given.command if host.partition(".")[0] == here else [*shell, host, shlex.join(given.command)])
        for host in hosts
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise Failed(f"mpirun: processes ended with {codes}")


def neuron_bench(arguments: Sequence[str]) -> None:
    options = parser("neuron-bench")
    options.add_argument("--collector", required=True)
    options.add_argument("--ranks", type=int, required=True)
    options.add_argument("--nodes", type=int, required=True)
    given = options.parse_args(arguments)
    node, devices, cores, efa = layout()
    if "bench" in faults() or len(present()) < devices or given.ranks > devices * cores:
        raise Failed(f"neuron-bench: nrt_init failed on {node}")
    if given.nodes > 1 and (not efa or "efa" in faults() or os.environ.get("FI_PROVIDER") != "efa"):
        raise Failed(f"neuron-bench: no EFA device on {node}")
    host, _, port = given.collector.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(f"{os.environ.get('NODE_RANK', '0')} {os.getpid()}\n".encode())


def size(text: str) -> int:
    digits = text.rstrip("KMGBkmgb")
    try:
        return int(digits) * _UNITS[text[len(digits) :].upper()]
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size") from None


def sizes(first: int, last: int, factor: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= factor


def nccom_test(arguments: Sequence[str]) -> None:
    options = parser("nccom-test")
    options.add_argument("operation", choices=_OPERATIONS)
    options.add_argument("-r", "--nworkers", type=int, required=True)
    options.add_argument("-N", "--nnodes", type=int, default=1)
    options.add_argument("-b", "--minbytes", type=size, default="32M")
    options.add_argument("-e", "--maxbytes", type=size, default="32M")
    options.add_argument("-f", "--stepfactor", type=int, default=2)
    options.add_argument("-n", "--iters", type=int, default=20)
    options.add_argument("-w", "--warmup_iters", type=int, default=5)
    options.add_argument("-d", "--datatype", choices=_BYTES, default="uint8")
    options.add_argument("--non-interactive", action="store_true")
    options.add_argument("--data-collector-host", default="127.0.0.1")
    options.add_argument("-s", "--hosts", nargs="+", default=[])
    given = options.parse_args(arguments)
    if not Path(f"{os.environ.get('TRN_SYS_ROOT', '')}/sys/module/neuron").exists():
        raise Failed("Neuron DKMS Driver is not running! Read the troubleshooting guide")
    if given.nworkers % given.nnodes:
        raise Failed(f"nccom-test: {given.nworkers} workers do not divide by {given.nnodes} nodes")
    reported = bench(given)
    print("       size(B)    count(elems)    type    time:avg(us)    algbw(GB/s)    busbw(GB/s)")
    found, factor = [], 2 * (given.nworkers - 1) / given.nworkers
    most = float(faults().get("bandwidth", BANDWIDTH))
    for amount in sizes(given.minbytes, given.maxbytes, given.stepfactor):
        start = f"{amount:14d}"
        if reported is not None:
            print(f"{start}    Failure running neuron-bench - log file {reported}\n1 errors found - test failed")
            raise Failed("")
        bus = most * amount / (amount + (1 << 23))
        found.append(bus)
        time = amount / (bus / factor * (1 << 30)) * 1e6
        row = (
            str(amount // _BYTES[given.datatype]),
            given.datatype,
            f"{time:.2f}",
            f"{bus / factor:.2f}",
            f"{bus:.2f}",
        )
        print(start + "".join(f"{w:>16}" for w in row))
    print(f"Avg bus bandwidth:\t{sum(found) / len(found):.4f}GB/s")


def bench(given: argparse.Namespace) -> str | None:
    """Run neuron-bench on every node and wait for each report. Returns None, or the file with the error."""
    with socket.create_server((given.data_collector_host, 0)) as server:
        server.settimeout(60)
        collector = f"{given.data_collector_host}:{server.getsockname()[1]}"
        command = ["neuron-bench", "--collector", collector, "--nodes", str(given.nnodes)]
        command += ["--ranks", str(given.nworkers // given.nnodes)]
        if given.nnodes > 1:
            if len(given.hosts) != given.nnodes:
                raise Failed(f"nccom-test: {given.nnodes} nodes, but {len(given.hosts)} hosts")
            address, _, port = os.environ.get("NEURON_RT_ROOT_COMM_ID", "").partition(":")
            try:
                ipaddress.ip_address(address)
                int(port)
            except ValueError:
                raise Failed(
                    "nccom-test: NEURON_RT_ROOT_COMM_ID must be the address and a port of the first host"
                ) from None
            command = ["mpirun", "--host", ",".join(given.hosts), "-np", str(given.nnodes), *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            with tempfile.NamedTemporaryFile("w", prefix="nccom_test_log_", suffix=".log", delete=False) as log:
                log.write(done.stdout + done.stderr)
            return log.name
        ranks = set()
        for _ in range(given.nnodes):
            line, _ = server.accept()
            with line, line.makefile() as text:
                ranks.add(text.readline().split()[0])
        if len(ranks) != given.nnodes:
            raise Failed(f"nccom-test: only nodes {sorted(ranks)} reported")
    return None


TOOLS: Mapping[str, Callable[[Sequence[str]], None]] = dict(
    zip(NAMES, (dpkg_query, fi_info, mpirun, nccom_test, neuron_bench, neuron_ls, neuron_monitor), strict=True)
)


def main() -> int:
    try:
        TOOLS[sys.argv[1]](sys.argv[2:])
    except Failed as e:
        print(e, file=sys.stderr)
        return e.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
