#!/usr/bin/env python3
"""Starts one process of a JAX program: `jax_process.py SCRIPT ARGUMENT...`, or `jax_process.py -m MODULE ARGUMENT...`.

First it sets the variables that JAX and its plug-in for Neuron read. A variable that you have set stays.
"""

import os
import runpy
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

CANNOT_START = 64
"""Exit code that ends the job: a second attempt would not help."""
OTHERS_SECONDS = 10.0
"""For which a process that has failed stays: JAX lets it wait 300 s for all others, which cannot end without it."""


def variables(given: Mapping[str, str]) -> dict[str, str]:
    """What is read of the rank, from the variables of the node: by the plug-in (Neuron's documentation, "JAX NeuronX Environment Variables",
    2026-03-13), by `jax.distributed.initialize` (JAX 0.10), by AXLearn's `launch.py`, and by MaxText (with NNODES and NODE_RANK).

    MASTER_PORT is the port of Neuron's collectives. The coordinator has the next one, as in the scripts for Trn2 of aws-zhenguo/axlearn.

    >>> node = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "2022", "NNODES": "2", "NPROC_PER_NODE": "64"}
    >>> found = variables({**node, "RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"})
    >>> found["NEURON_PJRT_PROCESSES_NUM_DEVICES"], found["JAX_COORDINATOR_ADDRESS"], "NEURON_RT_VISIBLE_CORES" in found
    ('64,64', '10.0.0.1:2023', False)
    >>> variables({**node, "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"})["NEURON_RT_VISIBLE_CORES"]
    '16-31'
    """
    count, local, address, port = (given[name] for name in ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"))
    copies, next_port = int(count) // int(given["NNODES"]), str(int(port) + 1)
    cores = max(1, int(given["NPROC_PER_NODE"]) // copies)
    first = int(local) * cores
    coordinator = f"{address}:{next_port}"
    neuron = {
        "NEURON_RT_ROOT_COMM_ID": f"{address}:{port}",
        "NEURON_PJRT_PROCESSES_NUM_DEVICES": ",".join([str(cores)] * int(count)),
        "NEURON_PJRT_PROCESS_INDEX": given["RANK"],
        **({"NEURON_RT_VISIBLE_CORES": f"{first}-{first + cores - 1}"} if copies > 1 else {}),
    }
    return {
        **neuron,
        **{"JAX_COORDINATOR_ADDRESS": coordinator, "JAX_COORDINATOR_IP": address, "JAX_COORDINATOR_PORT": next_port},
        **{"JAX_NUM_PROCESSES": count, "JAX_PROCESS_ID": given["RANK"]},
        # all of them: else JAX asks Kubernetes, if Kubernetes' client is installed
        "JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(cores))),
        **{"DISTRIBUTED_COORDINATOR": coordinator, "NUM_PROCESSES": count, "PROCESS_ID": given["RANK"]},
    }


def main() -> None:
    words = sys.argv[1:]
    module = words[:1] == ["-m"]
    sys.argv = words[1:] if module else words
    if not sys.argv or sys.argv[0].startswith("-"):
        print(f"trn: {' '.join(words) or 'nothing'} is neither a script nor -m MODULE", file=sys.stderr)
        sys.exit(CANNOT_START)
    for name, value in variables(os.environ).items():
        os.environ.setdefault(name, value)
    sys.path[0] = str(Path.cwd() if module else Path(sys.argv[0]).resolve().parent)
    try:
        if module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as e:
        if e.code:
            end_soon(e.code if isinstance(e.code, int) else 1)
        raise
    except BaseException as e:
        end_soon(1)
        show(e)


def end_soon(code: int) -> None:
    """End this process within 10 seconds, even if it waits for the others."""
    timer = threading.Timer(OTHERS_SECONDS, os._exit, [code])
    timer.daemon = True
    timer.start()


def show(error: BaseException) -> NoReturn:
    """Print an exception as Python does, without the lines of this file."""
    at = error.__traceback__
    while at and at.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        at = at.tb_next
    sys.excepthook(type(error), error.with_traceback(at), at)
    sys.exit(1)


if __name__ == "__main__":
    main()
