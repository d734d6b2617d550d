"""neuron_parallel_compile on a virtual node: a trial run extracts the graphs, which are then compiled into the cache.

The cache is where the trial run finds it (a launcher script may set NEURON_CC_FLAGS), so each node fills its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from .compile_cache import Graph, log
from .node import fault

_ME = "NEURON_PARALLEL_COMPILE"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if every graph was compiled, else the trial run's code, or 1 for a failed graph."""
    command = list(sys.argv[1:] if arguments is None else arguments)
    if not command:
        print("usage: neuron_parallel_compile COMMAND...", file=sys.stderr)
        return 2
    if command[0] == "--command":
        print("neuron_parallel_compile: only compiling is supported here, not --command", file=sys.stderr)
        return 2
    log("Running trial run (add option to terminate trial run early; also ignore trial run's generated outputs)", _ME)
    with tempfile.TemporaryDirectory(prefix="trn-graphs-") as scratch:
        listing = Path(scratch) / "graphs"
        code = _trial(command, listing)
        if code != 0:
            log(f"The trial run failed with exit code {code}; nothing is compiled", _ME, "ERROR")
            return code
        entries = sorted(set(listing.read_text().split("\n")) - {""}) if listing.exists() else []
    return _compile([Graph(Path(entry)) for entry in entries])


def _trial(command: list[str], listing: Path) -> int:
    env = {**os.environ, "NEURON_EXTRACT_GRAPHS_ONLY": "1", "TRN_EXTRACTED_GRAPHS": str(listing)}
    try:
        process = subprocess.Popen(command, env=env)
    except OSError as problem:
        print(f"neuron_parallel_compile: cannot run {command[0]}: {problem.strerror}", file=sys.stderr)
        return 127

    def forward(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    before = signal.signal(signal.SIGTERM, forward)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
    return 128 - code if code < 0 else code


def _compile(graphs: list[Graph]) -> int:
    failed = 0
    if graphs:
        log(f"Compile cache path: {graphs[0].entry.parent.parent}", "NEURON_CACHE")
    for i, graph in enumerate(graphs):
        good = graph.compiled or _one(graph, refuse=i == 0)
        failed += not good
        left = len(graphs) - i - 1
        log(
            f"Current remaining items are {left}, locked are 0, failed are {failed}, done are {i + 1 - failed}, "
            f"total is {len(graphs)}",
            "NEURON_CACHE",
        )
    log(f"Total graphs: {len(graphs)}", _ME)
    log(f"Total successful compilations: {len(graphs) - failed}", _ME)
    log(f"Total failed compilations: {failed}", _ME)
    return 1 if failed else 0


def _one(graph: Graph, refuse: bool) -> bool:
    if refuse and fault("precompile") is not None and os.environ.get("SLURM_NODEID", "0") == "0":
        log("parallel compilation with neuronx-cc exited with error.Received error code: -9", _ME, "ERROR")
        return False
    graph.compile()
    return True


if __name__ == "__main__":
    raise SystemExit(main())
