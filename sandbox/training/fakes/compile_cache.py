"""The compile cache on a virtual node: real paths, names and log lines, with a tiny compiler.

A graph is described by its inputs (script, sizes, world size, compiler flags). "Compiling" derives bytes from that
description with thousands of rounds of hashing: real work that is done once per node and cached.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from . import node

COMPILER = "neuronxcc-0.0.0+sandbox"
_ROUNDS = 20_000


def directory() -> Path:
    """The cache's directory: `--cache_dir` in NEURON_CC_FLAGS takes precedence over NEURON_COMPILE_CACHE_URL, then the default.

    Raises:
        node.NodeError: the cache is an S3 address, which the sandbox does not have.
    """
    flags = shlex.split(os.environ.get("NEURON_CC_FLAGS", ""))
    place = os.environ.get("NEURON_COMPILE_CACHE_URL", "")
    for i, flag in enumerate(flags):
        if flag == "--cache_dir" and i + 1 < len(flags):
            place = flags[i + 1]
        elif flag.startswith("--cache_dir="):
            place = flag.partition("=")[2]
    if place.startswith("s3://"):
        raise node.NodeError(f"the compile cache {place} is in S3; on virtual nodes it must be a directory")
    if place:
        return Path(place).expanduser()
    # The default is on the node's local disk: use a separate folder for each virtual node.
    return Path(os.environ.get("TRN_SANDBOX", "/var/tmp")) / "disks" / node.name() / "var/tmp/neuron-compile-cache"  # noqa: S108


def compile_flags() -> list[str]:
    """The part of NEURON_CC_FLAGS that is passed to the compiler."""
    flags = shlex.split(os.environ.get("NEURON_CC_FLAGS", ""))
    kept, skip = [], False
    for flag in flags:
        if not skip and not flag.startswith("--cache_dir"):
            kept.append(flag)
        skip = flag == "--cache_dir"
    return kept


@dataclass(frozen=True)
class Graph:
    """An extracted graph and its path in the cache."""

    entry: Path

    @property
    def hlo(self) -> Path:
        return self.entry / "model.hlo_module.pb"

    @property
    def neff(self) -> Path:
        return self.entry / "model.neff"

    @property
    def compiled(self) -> bool:
        return (self.entry / "model.done").exists() and self.neff.exists()

    @classmethod
    def of(cls, cache: Path, description: dict[str, object], index: int) -> Graph:
        text = json.dumps({**description, "graph": index}, sort_keys=True)
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        flags = hashlib.sha256(" ".join(compile_flags()).encode()).hexdigest()[:8]
        graph = cls(cache / COMPILER / f"MODULE_{number}+{flags}")
        if not graph.hlo.exists():
            graph.entry.mkdir(parents=True, exist_ok=True)
            (graph.entry / "compile_flags.txt").write_text(" ".join(compile_flags()) + "\n")
            graph.hlo.write_text(text)
        return graph

    def compile(self) -> None:
        """Create the executable file, then its marker; an interrupted compilation leaves no marker."""
        made = hashlib.pbkdf2_hmac("sha512", self.hlo.read_bytes(), self.entry.name.encode(), _ROUNDS)
        part = self.neff.with_suffix(".part")
        part.write_bytes(b"NEFF" + made)
        part.replace(self.neff)
        (self.entry / "model.done").touch()


def load(description: dict[str, object], graphs: int) -> None:
    """The first steps of a training script: take each graph from the cache, or compile it.

    While neuron_parallel_compile extracts graphs, only record them.
    """
    cache = directory()
    wanted = [Graph.of(cache, description, i) for i in range(graphs)]
    listing = os.environ.get("TRN_EXTRACTED_GRAPHS")
    if os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY") and listing:
        with Path(listing).open("a") as notes:
            notes.writelines(f"{graph.entry}\n" for graph in wanted)
        return
    missing = [graph for graph in wanted if not graph.compiled]
    if missing:
        log(f"Compile cache path: {cache}", "NEURON_CACHE")
        log(f"{len(missing)} of {graphs} graphs are not in the cache: compiling them one by one", "NEURON_CACHE")
    for graph in wanted:
        if graph.compiled:
            log(f"Using a cached neff at {graph.neff}", "NEURON_CC_WRAPPER")
            continue
        command = f"neuronx-cc compile --framework=XLA {graph.hlo} --output {graph.neff} {' '.join(compile_flags())}"
        log(f"Call compiler with cmd: {command.strip()}", "NEURON_CC_WRAPPER")
        graph.compile()
        log("Compiler status PASS", "NEURON_CC_WRAPPER")


def log(what: str, source: str, level: str = "INFO") -> None:
    print(f"{node.stamp()}:  {os.getpid()}  {level} ||{source}||: {what}", flush=True)
