"""Scripts that call srun themselves, on a real Slurm: in a step of each node, and with `--launcher batch` in the batch script."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.test_slurm import log
from tests.support import until
from trainium_cdk.jobs import Script, SlurmBackend

INNER = """#!/bin/bash
ip=$(timeout 60 $(type -p srun) --nodes=1 --ntasks=1 hostname --ip-address) || exit 9
echo "head <$ip>"
"""
"""By words in which no reader of a script's text sees srun, as a Python script would call it."""

TRAIN = """
import os, sys
told = [os.environ[name] for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_NODEID", "NNODES", "MASTER_ADDR", "TOKEN")]
of_one_node = [os.environ.get(name) for name in ("NODE_RANK", "TRN_PROGRESS")]
print("train", told, of_one_node, "cache_dir" in os.environ["NEURON_CC_FLAGS"] if "NEURON_CC_FLAGS" in os.environ else False, sys.argv[1:], flush=True)
"""
TUTORIAL = f"""#!/bin/bash
set -e
cat > train.py <<'EOF'{TRAIN}EOF
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${{nodes[0]}}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
echo "Node IP: <$head_node_ip>"

srun torchrun --nnodes "$SLURM_NNODES" --nproc_per_node 1 --rdzv_id $RANDOM --rdzv_backend c10d \\
    --rdzv_endpoint $head_node_ip:29500 train.py --steps 3
echo "the rest of the script"
exit 7
"""
SAVES = """
import os, signal, sys, time
def save(*_):
    time.sleep(1)
    print("saved", os.environ["SLURM_PROCID"], flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("begins", flush=True)
time.sleep(600)
"""


def script(text: str, **fields: Any) -> Script:
    return Script(filename="run.sh", content=text.encode(), **fields)


@pytest.mark.parametrize("fields", [{}, {"nodes": 2}, {"nodes": 2, "tasks_per_node": 3}, {"array": "0-1"}], ids=str)
def test_an_inner_srun_ends(fields: dict[str, Any], backend: SlurmBackend) -> None:
    """It shares what the step around it holds, and the script reads its output as it is: without a number before each line."""
    sent = backend.submit(script(INNER, **fields))
    done = backend.wait(sent.id, timeout=600)
    assert done.ok, log(backend, sent.id)
    for id in [f"{sent.id}/{member.name}" for member in done.members] or [sent.id]:
        assert log(backend, id).count("head <127.0.0.1>") == fields.get("nodes", 1) * fields.get("tasks_per_node", 1)


def test_a_script_of_a_tutorial(backend: SlurmBackend) -> None:
    """It runs once, its srun reaches all nodes, and its exit code is the job's. What is one node's alone is not set for the others."""
    sent = backend.submit(script(TUTORIAL, nodes=2, launcher="batch", env={"TOKEN": "a b"}))
    done, text = backend.wait(sent.id, timeout=600), log(backend, sent.id)
    assert (done.state, done.stages[-1].exit_code, text.count("the rest of the script")) == ("FAILED", 7, 1), text
    assert "Node IP: <127.0.0.1>" in text
    for task in "01":
        told, alone = [task, "2", task, "2", "127.0.0.1", "a b"], [None, ""]
        assert f"train {told} {alone} False ['--steps', '3']" in text.splitlines()
    assert "Ignoring --ntasks-per-node" not in text


def test_processes_of_each_node(backend: SlurmBackend) -> None:
    """As with sbatch's --ntasks-per-node: how many srun starts there, if it is not told."""
    text = "#!/bin/bash\necho once\nsrun bash -c 'echo \"task <$SLURM_PROCID>\"'\n"
    sent = backend.submit(script(text, nodes=2, launcher="batch", tasks_per_node=3))
    assert backend.wait(sent.id, timeout=600).ok
    text = log(backend, sent.id)
    assert (sorted(re.findall(r"task <(\d)>", text)), text.count("once")) == (list("012345"), 1)


def test_members_of_an_array(backend: SlurmBackend) -> None:
    text = "#!/bin/bash\nsrun -N1 -n1 bash -c 'echo \"member $TRN_ARRAY_INDEX <$NODE_RANK>\"'\n"
    sent = backend.submit(script(text, launcher="batch", array="3-4"))
    assert backend.wait(sent.id, timeout=600).ok
    assert [log(backend, f"{sent.id}/{index}").count(f"member {index} <0>") for index in (3, 4)] == [1, 1]


def test_cancel_lets_the_steps_save(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    text = f"#!/bin/bash\nsrun python3 -c '{SAVES}'\n"
    sent = backend.submit(script(text, nodes=2, launcher="batch"))
    assert until(lambda: log(backend, sent.id).count("begins") == 2)
    assert backend.cancel(sent.id).state == "CANCELLED"
    assert until(lambda: {"saved 0", "saved 1"} <= set(log(backend, sent.id).splitlines())), log(backend, sent.id)
    assert until(lambda: not slurm.run(["squeue", "--noheader", "--steps"]).stdout.strip())
