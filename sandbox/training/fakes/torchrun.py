"""torchrun on a virtual node: the real command line, but one process per node instead of one per NeuronCore.

Two cores cannot run 16 nodes x 32 processes. Each node runs one process that does the work of its workers one after
the other; TRN_WORKERS has their number.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from .node import MasterPort, NodeError, address_of

_JOIN_SECONDS = 120.0


def parser() -> argparse.ArgumentParser:
    """torchrun's options for the set of processes; names can be written with - or _, as there."""
    made = argparse.ArgumentParser(prog="torchrun", allow_abbrev=False)
    for name, kind, default in (
        ("nproc_per_node", str, "1"),
        ("nnodes", str, "1:1"),
        ("node_rank", int, 0),
        ("master_addr", str, "127.0.0.1"),
        ("master_port", int, 29500),
        ("rdzv_backend", str, "static"),
        ("rdzv_endpoint", str, ""),
        ("rdzv_id", str, "none"),
        ("rdzv_conf", str, ""),
        ("max_restarts", int, 0),
        ("monitor_interval", float, 0.1),
        ("start_method", str, "spawn"),
        ("role", str, "default"),
        ("log_dir", str, None),
        ("tee", str, "0"),
        ("redirects", str, "0"),
        ("local_addr", str, None),
    ):
        made.add_argument(f"--{name}", f"--{name.replace('_', '-')}", type=kind, default=default)
    made.add_argument("--standalone", action="store_true")
    made.add_argument("-m", "--module", action="store_true")
    made.add_argument("training_script")
    made.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    try:
        nodes = int(args.nnodes.rpartition(":")[2])
        workers = int(args.nproc_per_node)
    except ValueError:
        raise SystemExit(
            f"torchrun: --nnodes {args.nnodes} and --nproc_per_node {args.nproc_per_node} must be numbers here"
        ) from None
    master, port = args.master_addr, args.master_port
    rank = args.node_rank
    if args.rdzv_backend == "c10d" and args.rdzv_endpoint:
        master, _, text = args.rdzv_endpoint.partition(":")
        port = int(text or 29400)
        rank = int(os.environ.get("SLURM_NODEID", rank))
    if not 0 <= rank < nodes:
        raise SystemExit(f"torchrun: --node_rank {rank} is not below --nnodes {nodes}")
    env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(nodes), "GROUP_RANK": str(rank)}
    env |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "TRN_WORKERS": str(workers)}
    if args.tee != "0":
        env["TRN_LINE_PREFIX"] = f"[{args.role}0]:"
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    env |= _rendezvous(master, port, rank, nodes)
    script = ["-m", args.training_script] if args.module else [args.training_script]
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *script, *args.training_script_args], env)  # noqa: S606  the shell would only be in the way


def _rendezvous(master: str, port: int, rank: int, nodes: int) -> dict[str, str]:
    """Where rank 0 listens. Its socket is opened here and passed on, so that no other process takes the port."""
    if nodes == 1:
        return {}
    note = MasterPort(master, port)
    try:
        if rank != 0:
            return {"MASTER_ADDR": address_of(master), "MASTER_PORT": str(note.find(_JOIN_SECONDS))}
        address = address_of(master)
    except NodeError as problem:
        raise SystemExit(f"torchrun: {problem}") from None
    listener = socket.create_server((address, 0), backlog=nodes)
    here = listener.getsockname()[1]
    found = {"MASTER_ADDR": address, "MASTER_PORT": str(here)}
    os.set_inheritable(listener.fileno(), True)
    found["TRN_LISTEN_FD"] = str(listener.detach())
    note.announce(here)
    return found


if __name__ == "__main__":
    main()
