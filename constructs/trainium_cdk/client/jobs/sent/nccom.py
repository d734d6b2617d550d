"""Smoke test of a job's nodes, sent with a job of the kind `nccom`: python3 nccom.py FOLDER SETTINGS [PROBLEM].

Every node checks its devices and reports in FOLDER, which all nodes share. When all have reported, the first node measures an
all-reduce over all NeuronCores with nccom-test, and reports in its last lines what is broken. It runs with a node's own Python (3.9 or
newer) and the standard library.

nccom-test starts its processes on other nodes with Open MPI, which uses a remote shell. Containers have none, so Open MPI is given
this program (--agent): it passes the command to the waiting node through FOLDER. It works the same way on Slurm.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TOOLS = ("/opt/aws/neuron/bin", "/opt/amazon/efa/bin", "/opt/amazon/openmpi/bin")
"""Where the Neuron SDK and the EFA installer put programs; searched after PATH."""
PORT = 48620
"""Port of Neuron's collectives: nodes keep it free of outgoing connections."""
COMMAND = ("-b", "1MB", "-e", "1GB", "-f", "4", "-n", "50", "-w", "5", "-d", "fp32", "--non-interactive")
"""Sizes, repetitions and type of the all-reduce. The last size is compared with a published bandwidth."""
WAIT = 900.0
"""Maximum seconds for all nodes to report, and for the measurement."""


@dataclass(frozen=True)
class Settings:
    """What the nodes should have, and how fast they should be.

    Attributes:
        devices, cores, efa: of one node; cores are logical NeuronCores.
        published: bus bandwidth published for this test, GB/s; None if none is published.
        source: where and when it was published.
        least: bus bandwidth below which the test fails, GB/s; None for no limit.
    """

    devices: int
    cores: int
    efa: int
    published: float | None = None
    source: str = ""
    least: float | None = None


@dataclass(frozen=True)
class Node:
    """A node's report. `name` is its name for other nodes, `label` its name for the user."""

    name: str
    label: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """One line of nccom-test's table. Bandwidth in GB/s; None if the line reports a failure."""

    size: int
    bandwidth: float | None
    failure: str = ""


# --- one node ----------------------------------------------------------------------------------------------------------


def run(command: Sequence[str], timeout: float = 60, **options: Any) -> tuple[int, str]:
    """(exit code, output; with stderr if it failed). 127: the program does not exist; 124: it took too long."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=timeout,
            check=False, **options,
        )  # fmt: skip
    except FileNotFoundError:
        return 127, f"there is no {command[0]}"
    except subprocess.TimeoutExpired as e:
        output = e.stdout.decode(errors="replace") if isinstance(e.stdout, bytes) else e.stdout or ""
        return 124, f"{output}\n{command[0]} did not end within {timeout:.0f} s"
    return done.returncode, done.stdout + (done.stderr if done.returncode else "")


def device_problems(expected: int) -> list[str]:
    """What is wrong with the Neuron devices of this node."""
    code, output = run(["neuron-ls", "-j"])
    if code not in (0, 127):  # Neuron 2.34 and later
        again, listing = run(["neuron-ls", "--output-format", "json"])
        code, output = (again, listing) if again == 0 else (code, output)
    if code != 0:
        return [f"neuron-ls failed: {last_line(output)}"]
    try:
        found = device_indices(json.loads(output))
    except ValueError:
        return [f"neuron-ls gave no JSON: {last_line(output)}"]
    if len(found) == expected:
        return []
    missing = ", ".join(str(i) for i in range(expected) if i not in found)
    return [f"{len(found)} of {expected} Neuron devices; missing: {missing or 'none, there are more than expected'}"]


def device_indices(listing: Any) -> set[int]:
    """The devices in neuron-ls' JSON, however they are nested."""
    if isinstance(listing, dict):
        if "neuron_device" in listing:
            return {int(listing["neuron_device"])}
        return {index for value in listing.values() for index in device_indices(value)}
    if isinstance(listing, list):
        return {index for value in listing for index in device_indices(value)}
    return set()


def efa_problems(expected: int) -> list[str]:
    """What is wrong with the EFA interfaces of this node. fi_info lists each once for every fabric."""
    if expected == 0:
        return []
    code, output = run(["fi_info", "-p", "efa", "-t", "FI_EP_RDM"])
    if code == 127:
        return ["fi_info is missing: the EFA software is not installed"]
    found = set(re.findall(r"^\s*domain:\s*(\S+)", output, re.MULTILINE))
    reason = f" ({last_line(output)})" if code else ""
    return [] if len(found) == expected else [f"{len(found)} of {expected} EFA interfaces{reason}"]


def tool_problems(nodes: int) -> list[str]:
    needed = ["nccom-test", *(["mpirun"] if nodes > 1 else [])]
    return [f"{tool} is missing from this node or its image" for tool in needed if shutil.which(tool) is None]


# --- all nodes ---------------------------------------------------------------------------------------------------------


def write(file: Path, text: str) -> None:
    """Write a file atomically: other nodes never read half of it."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_text(text)
    part.replace(file)


def wait_for(found: Callable[[], Any], seconds: float) -> Any:
    """The first true result, or the last result when the time is over."""
    end = time.monotonic() + seconds
    while not (answer := found()) and time.monotonic() < end:
        time.sleep(0.2)
    return answer


def gather(folder: Path, nodes: int) -> list[Node | None]:
    """The reports of all nodes by rank; None for a missing one."""
    files = [folder / f"node.{rank}" for rank in range(nodes)]
    wait_for(lambda: all(file.exists() for file in files), WAIT)
    return [Node(**json.loads(file.read_text())) if file.exists() else None for file in files]


def serve(folder: Path, name: str) -> None:
    """Run the first node's commands here, until it has its result."""

    def ended() -> bool:
        for request in sorted(folder.glob(f"request.{name}.*")):
            answer = folder / request.name.replace("request", "answer", 1)
            if not answer.exists():
                code, output = run(["bash", "-c", request.read_text()], WAIT)
                print(output, end="", flush=True)
                write(answer, str(code))
        return (folder / "verdict").exists()

    wait_for(ended, 2 * WAIT)


def agent(folder: Path, host: str, words: Sequence[str]) -> int:
    """Run a command on another node, as a remote shell would; its exit code."""
    command, mark = " ".join(words), f"{os.getpid()}-{time.monotonic_ns()}"
    if host == os.environ["TRN_NODE_NAME"]:
        return subprocess.call(["bash", "-c", command])
    answer = folder / f"answer.{host}.{mark}"
    write(folder / f"request.{host}.{mark}", command)
    return int(answer.read_text()) if wait_for(answer.exists, WAIT) else 124


def measure(folder: Path, settings: Settings, nodes: Sequence[Node]) -> tuple[int, str]:
    """(exit code, output) of nccom-test over all nodes."""
    env = {
        key: value for key, value in os.environ.items() if not key.startswith("SLURM_")
    }  # otherwise Open MPI uses srun
    address = socket.gethostbyname(os.environ["MASTER_ADDR"])
    remote = f"{sys.executable} {Path(__file__).resolve()} --agent {folder}"
    env["NEURON_RT_ROOT_COMM_ID"] = f"{address}:{PORT}"
    for prefix, launcher in (("OMPI_MCA", "rsh"), ("PRTE_MCA", "ssh")):  # Open MPI 4, and 5
        env |= {f"{prefix}_plm": launcher, f"{prefix}_plm_{launcher}_agent": remote}
    command = ["nccom-test", "-r", str(settings.cores * len(nodes)), "-N", str(len(nodes)), *COMMAND, "allr"]
    if len(nodes) > 1:
        command += ["--data-collector-host", address, "--hosts", *(node.name for node in nodes)]
    print("trn: " + " ".join(command), flush=True)
    code, output = run(command, WAIT, env=env)
    print(output, flush=True)
    return code, output


def rows(output: str) -> Iterator[Row]:
    """The lines of nccom-test's table. Its first line names the columns."""
    at: list[str] = []
    for line in output.splitlines():
        words = line.split()
        if words[:1] == ["size(B)"]:
            at = words
        elif at and len(words) > 1 and words[0].isdigit() and not re.match(r"\d+ errors? found", line.strip()):
            if len(words) == len(at) and re.fullmatch(r"\d+(\.\d+)?", words[at.index("busbw(GB/s)")]):
                yield Row(int(words[0]), float(words[at.index("busbw(GB/s)")]))
            else:
                yield Row(int(words[0]), None, " ".join(words[1:]))


def verdict(code: int, output: str, settings: Settings, workers: int) -> tuple[list[str], list[str]]:
    """(what was measured, what is broken) by nccom-test's output."""
    found = list(rows(output))
    failures = [f"all-reduce of {row.size:,} bytes: {row.failure}" for row in found if row.bandwidth is None]
    if failures or code != 0 or not found:
        return [], failures or [f"nccom-test failed with exit code {code}: {last_line(output)}"]
    last = found[-1]
    assert last.bandwidth is not None  # noqa: S101  otherwise it is a failure
    published = "no published value"
    if settings.published is not None:
        published = f"published: {settings.published:g} GB/s, {settings.source}"
    speed = f"{last.bandwidth:g} GB/s bus bandwidth"
    measured = [f"all-reduce of {last.size:,} bytes over {workers} NeuronCores: {speed} ({published})"]
    if settings.least is not None and last.bandwidth < settings.least:
        return measured, [f"the all-reduce is slow: {speed}, at least {settings.least:g} GB/s were expected"]
    return measured, []


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it printed nothing"


def first_node(folder: Path, settings: Settings, count: int) -> int:
    """Wait for the others, measure, and report. The exit code."""
    reports = gather(folder, count)
    nodes = [node for node in reports if node is not None]
    broken = [f"node {rank}: it has not reported" for rank, node in enumerate(reports) if node is None]
    for rank, node in enumerate(reports):
        if node is not None:
            broken += [f"node {rank} ({node.label}): {problem}" for problem in node.problems]
    lines = [f"{len(nodes)} of {count} nodes reported"]
    if broken:
        lines.append("no all-reduce was run, as it needs every device")
    else:
        lines.append(f"each has {settings.devices} Neuron devices and {settings.efa} EFA interfaces, as it should")
        measured, broken = verdict(*measure(folder, settings, nodes), settings, settings.cores * count)
        lines += measured
    write(folder / "verdict", "\n".join(broken))
    # the others end first: a failure of this node stops them, and their output must not come last
    others = [folder / f"ended.{rank}" for rank, node in enumerate(reports) if rank and node]
    wait_for(lambda: all(file.exists() for file in others), 60)
    for line in [*lines, *(f"BROKEN: {problem}" for problem in broken)] + ([] if broken else ["nothing is broken"]):
        print(f"trn: {line}", flush=True)
    return 1 if broken else 0


def node_name(env: Mapping[str, str]) -> str:
    """The name of this node for the others: Slurm's; of a pod, its host name in the domain of the first one."""
    pod = f"{socket.gethostname()}.{env['MASTER_ADDR'].partition('.')[2]}"
    return env.get("TRN_NODE_NAME") or env.get("SLURMD_NODENAME") or pod


def main(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    os.environ["PATH"] = os.pathsep.join([env.get("PATH", os.defpath), *TOOLS])
    if arguments[0] == "--agent":
        return agent(Path(arguments[1]), arguments[2], arguments[3:])
    folder, settings = Path(arguments[0]), Settings(**json.loads(arguments[1]))
    rank, count = int(env["NODE_RANK"]), int(env["NNODES"])
    folder.mkdir(parents=True, exist_ok=True)
    problems = [problem for problem in arguments[2:] if problem]
    problems += [*device_problems(settings.devices), *efa_problems(settings.efa), *tool_problems(count)]
    name = os.environ["TRN_NODE_NAME"] = node_name(env)  # the agent's too
    node = Node(name, env.get("TRN_NODE") or name, tuple(problems))
    write(folder / f"node.{rank}", json.dumps(asdict(node)))
    if rank == 0:
        return first_node(folder, settings, count)
    serve(folder, name)
    write(folder / f"ended.{rank}", "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
