"""Why a program ended: of logs as programs and launchers print them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from trainium_cdk.client.jobs.status import Stage, error_patterns, with_reason
from trainium_cdk.runner.readers import Said
from trainium_cdk.runner.readers.collecting import Collector
from trainium_cdk.runner.readers.ending import why_it_ended
from trainium_cdk.runner.records import Failure

EINOPS = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import einops
ModuleNotFoundError: No module named 'einops'
"""
EINOPS_SAID = (
    "ModuleNotFoundError: No module named 'einops'. The job's Python lacks that package or module, or has another version of it. "
    "Name packages in a requirements file (--requirements); send your own modules with --workdir"
)
HARMLESS = """2026-Nov-26 09:11:12.0950 1358943:1359077 [0] init.cc:138 CCOM WARN OFI plugin initNet() failed is EFA enabled?
2026-11-26 09:11:13.000111:  3131  INFO ||NEURON_CACHE||: Another process must be compiling MODULE_1, been waiting for: 0.1 minutes
E0811 14:46:04.709808861 2142245 tcp_server_posix.cc:216]    Failed accept4: Too many open files
Compiler status PASS
"""
LOCKED = "INFO ||NCC_WRAPPER||: Another process must be compiling /efs/x/model.hlo.pb, been waiting for: 40 minutes\n"
KILLED = "killed by signal 9 (SIGKILL), most often because the node's memory was full"
CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
    {}["x"]
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 9, in <module>
    f()
mine.BadShard: shard 7 of /fsx/tokens is cut off
"""
TORCHRUN = """E1126 09:11:12.000000 4400 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) local_rank: 3 (pid: 4411) of binary: /opt/x/bin/python3
Traceback (most recent call last):
  File "/opt/x/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/x/lib/python3.11/site-packages/torch/distributed/run.py", line 1, in main
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-26_09:11:12
  rank      : 3 (local_rank: 3)
  exitcode  : {code} (pid: 4411)
  error_file: <N/A>
  traceback : {traceback}
============================================================
"""
STOPPED = """Failures:
[1]:
  time      : 2026-11-28_17:25:46
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 28146)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 28146
[2]:
  time      : 2026-11-28_17:25:46
  host      : localhost
  rank      : 2 (local_rank: 2)
  exitcode  : -15 (pid: 28148)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 28148
"""
"""What torchrun of PyTorch 2.15 reports of the workers that it has stopped itself, before the cause."""
SEE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
CLOSING = "W1128 17:25:46.539000 27964 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 28146 closing signal SIGTERM\n"


def torchrun(code: int, said: str) -> str:
    """The log of a worker that ends with this code, and whose siblings torchrun stops."""
    report = TORCHRUN.format(code=code, traceback=SEE).replace("Failures:\n  <NO_OTHER_FAILURES>\n", STOPPED)
    return f"step 6 loss 0.5\n{said}{CLOSING}{report}"


F137 = "2026-11-26T09:11:12Z [F137] neuronx-cc was forcibly killed - This most commonly occurs due to insufficient system memory.\n"


RAISED = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n'
BROKEN = """RuntimeError: NRT Execution error occurred on Neuron for operation=aten::mm
error message="NRT EXECUTION FAILED: Async execution error: seq_id=88, An HBM encountered an unrepairable uncorrectable error and produced incorrect results"
python stack trace=
"""
BROKEN_SAID = (
    f"{' '.join(BROKEN.splitlines()[:2])}. A Neuron device of the node reported a hardware error. Terminate that node's EC2 instance, so that the "
    "cluster starts another one; then the job resumes from its last checkpoint"
)
FELL_BACK = """ERROR:torch_neuronx.neuron_dynamo_backend.backend:Execution failed: Compilation error occurred on Neuron for operation=torch_compile;
error message="COMPILATION FAILED: [NCC_EVRF001] Operator cholesky is not supported"
python stack trace=

WARNING:torch_neuronx.neuron_dynamo_backend.backend:Falling back to original GraphModule execution
"""
COMPILED = """torch._dynamo.exc.BackendCompilerFailed: backend='neuron' raised:
RuntimeError: Compilation error occurred on Neuron for operation=torch_compile;
error message="COMPILATION FAILED: Command failed (neuronx-cc compilation) with exit code 70: [NCC_IXTP002] Number of instructions (11453027) is over"
"""
AUTOLOAD = f"""{RAISED}ImportError: libnrt.so.1: cannot open shared object file: No such file or directory

The above exception was the direct cause of the following exception:

{RAISED}RuntimeError: Failed to load the backend extension: torch_neuronx. You can disable extension auto-loading with TORCH_DEVICE_BACKEND_AUTOLOAD=0.
"""


STACK = """*** Check failure stack trace: ***
    @     0x7fa1039b2c5d  absl::lts_20250127::log_internal::LogMessage::PrepareToDie()
    @     0x7fa103b7050f  PyObject_Vectorcall
"""
DIES = (
    "Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task "
    "logs for more details. Disable Python buffering, i.e. `python -u`, to be sure to see all the previous output. absl::Status: "
)
JAX = f"""F1130 00:19:22.502670   17785 client.h:80] {DIES}DEADLINE_EXCEEDED: Deadline Exceeded

RPC: /xla.coordination.CoordinationService/RegisterTask
{STACK}"""
"""What jax 0.10.0 prints where another process does not come, or has raised an exception before."""
JAX_LEFT = f"""W1130 00:19:04.221491   18871 preemption_sync_manager.cc:146] Failed to retrieve preemption notice from coordination service: UNAVAILABLE: Socket closed
E1130 00:19:04.221563   18871 coordination_service_agent.cc:289] Polled an error from coordination service (this can be an error from this or another task).
F1130 00:19:04.221569   18871 client.h:80] {DIES}UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was preempted/died/restarted unexpectedly
:UNKNOWN:Error received from peer  {{grpc_status:14, grpc_message:"Socket closed"}}
{RAISED}ValueError: UNKNOWN: Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:640
{STACK}"""
"""Of a process whose coordinator was killed."""
JAX_WAITS = f"""E1130 00:18:23.248869    7764 coordination_service_agent.cc:289] Polled an error from coordination service (this can be an error from this or another task).
F1130 00:18:23.249000    7764 client.h:80] {DIES}INTERNAL: Shutdown barrier has failed.
Barrier result: 'DEADLINE_EXCEEDED: Barrier timed out. Id: Shutdown::11093969139087927814::0. This usually happens because a task triggered the barrier too early or too slowly.
# of tasks that reached the barrier: 1/2.
{STACK}"""
"""Of a process that waits for the others at its end: after an exception, too."""
JAX_PORT = f"""E1130 00:22:41.907664   10104 add_port.cc:83] Failed to add port to server: No address added out of total 1 resolved for '[::]:45991'
{RAISED}jax.errors.JaxRuntimeError: UNKNOWN: Failed to start RPC server
"""
ORBAX = f"""{RAISED}PermissionError: [Errno 13] Permission denied: '/fsx/runs/0.orbax-checkpoint-tmp'

During handling of the above exception, another exception occurred:

{RAISED}jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: ThreadSaveMultiHostValueHolder:set_value_start::1. This usually happens because a task
# of tasks that reached the barrier: 1/2.
"""
"""What orbax-checkpoint 0.12.8 prints where it may not write."""
LOST = (
    "The processes did not find each other, or lost each other, as one did not begin or ended earlier. Look at the first error of the other nodes "
    "(`trn logs JOB --node N`); a script must use the address and the port that trn sets"
)
WAITED = (
    "A process of JAX came to its end, and waited there for another one that did not. Let all processes make the same number of steps, also if one "
    "has less data; where one ended by an error, see its log (`trn logs JOB --node N`)"
)
FATAL = "Terminating process because the JAX distributed service detected fatal errors. absl::Status:"
ABORTED = "killed by signal 6 (SIGABRT), it ended itself, and its last lines have the reason"


def labelled(text: str, label: str) -> str:
    return "".join(f"{label}{line}\n" for line in text.splitlines())


def mixed(*texts: str) -> str:
    """Lines of several workers, one of each in turn."""
    rows = [text.splitlines() for text in texts]
    return "\n".join(row[at] for at in range(max(map(len, rows))) for row in rows if at < len(row))


ENDINGS: list[tuple[str, str, int | None, int, str]] = [
    ("an import", EINOPS, 1, 2, EINOPS_SAID),
    (
        "no memory", "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nMemoryError\n", 1, 1,
        "MemoryError. The node's or pod's memory was full. Use fewer data loader or compiler processes, load the data in parts, or use an instance "
        "type with more memory; unchanged, it fails again",
    ),
    ("killed", "step 1\nnode.sh: line 56:  5827 Killed                  python3 train.py\n", 137, 2, KILLED),
    ("killed, as a parent sees it", "step 1\n", -9, 1, KILLED),
    ("a fault", "step 1\n", 139, 1, "killed by signal 11 (SIGSEGV), a fault of a compiled library"),
    ("killed in a pipe", "step 1\nrun.sh: line 7:  4411 Killed                  python3 train.py\n", 1, 1, KILLED),
    ("a fault, as torchrun says it", "exitcode  : -11 (pid: 4411) Signal 11 (SIGSEGV) received by PID 4411\n", 1, 1, "killed by signal 11 (SIGSEGV), a fault of a compiled library"),
    ("of no signal", "step 1\n", 255, 1, "the last line of its log: step 1"),
    ("harmless lines", HARMLESS + EINOPS, 1, 1, EINOPS_SAID),
    ("harmless lines of two nodes", HARMLESS + EINOPS, 1, 2, EINOPS_SAID),
    ("harmless lines, and a kill", HARMLESS, 137, 2, KILLED),
    ("chained", CHAINED, 1, 1, "mine.BadShard: shard 7 of /fsx/tokens is cut off"),
    ("of a class of its own", CHAINED.replace("mine.BadShard: shard", "Broken: shard"), 1, 1, "Broken: shard 7 of /fsx/tokens is cut off"),
    ("colours and bars", f"\x1b[31m 10%|#  | 1/10\r{EINOPS}\x1b[0m", 1, 1, EINOPS_SAID),
    (
        "an uncaught exception of C++", "terminate called after throwing an instance of 'mine::Bad'\n  what():  shard 7\nstep 1\n", 134, 1,
        "killed by signal 6 (SIGABRT), it ended itself, and its last lines have the reason. The last exception of its log: mine::Bad: shard 7",
    ),
    (
        "DeepSpeed's launcher", "[2026-11-27 08:11:02,1] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py', '--local_rank=7'] exits with return code = -9\n",
        1, 1, KILLED,
    ),
    (
        "a message of several lines", "Traceback (most recent call last):\n  File \"t.py\", line 1\npydantic_core.ValidationError: 1 validation error for Config\nlr\n  Field required\n    https://errors\n\n",
        1, 1, "pydantic_core.ValidationError: 1 validation error for Config lr Field required https://errors",
    ),
    (
        "an indented line after it", 'Traceback (most recent call last):\n  File "t.py", line 1\nyaml.scanner.ScannerError: no mapping\n  in "c.yaml", line 3\nbye\n',
        1, 1, 'yaml.scanner.ScannerError: no mapping in "c.yaml", line 3',
    ),
    ("TorchNeuron", RAISED + BROKEN, 1, 1, BROKEN_SAID),
    ("TorchNeuron of several ranks", mixed(*(labelled(RAISED + BROKEN, f"[rank{n}]: ") for n in range(3))), 1, 1, BROKEN_SAID),
    ("TorchNeuron that fell back", FELL_BACK + RAISED + "KeyError: 'tokens'\n", 1, 1, "KeyError: 'tokens'"),
    (
        "TorchNeuron that cannot compile", RAISED + COMPILED, 1, 1,
        f"{' '.join(COMPILED.splitlines()[1:])}. The graph is too large for the compiler. Split it by more tensor or pipeline parallelism, "
        "or use a smaller batch or sequence",
    ),
    (
        "TorchNeuron that cannot be loaded", AUTOLOAD, 1, 1,
        "ImportError: libnrt.so.1: cannot open shared object file: No such file or directory. The Python that ran has no Neuron packages, or the image "
        "no Neuron runtime. Remove what activates another virtual environment; in your own image, begin with one of Neuron's (`trn image build` has examples)",
    ),
    ("a process of JAX that finds no other", "step 1\n" + JAX, 134, 2, f"{FATAL} DEADLINE_EXCEEDED: Deadline Exceeded. {LOST}"),
    (
        "a process of JAX whose coordinator was killed", "step 1\n" + JAX_LEFT, 134, 2,
        "ValueError: UNKNOWN: Gloo AllGather failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:640. "
        f"{LOST}. The log has: {FATAL} UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was preempted/died/restarted unexpectedly",
    ),
    ("a process of JAX that waits at its end", "step 1\n" + JAX_WAITS, 134, 2, f"{FATAL} INTERNAL: Shutdown barrier has failed. {WAITED}"),
    ("an exception of JAX", f"step 1\n{RAISED}ValueError: shard 7 of the data is cut off\n{JAX_WAITS}", 134, 2, "ValueError: shard 7 of the data is cut off"),
    (
        "no memory in JAX", f"{RAISED}jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 4398046511104 bytes.\n{'-' * 20}\n{JAX_WAITS}", 134, 2,
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 4398046511104 bytes. The model does not fit into the device's memory. "
        "Use a smaller batch, more tensor or pipeline parallelism, or activation checkpointing; unchanged, it fails again",
    ),
    (
        "JAX's port", JAX_PORT, 1, 2,
        "jax.errors.JaxRuntimeError: UNKNOWN: Failed to start RPC server. Another process on the node listens on that port. Let the script use the port that "
        "trn sets, start one launcher on each node, and end what an earlier job has left there. The log has: E1130 00:22:41.907664   10104 add_port.cc:83] "
        "Failed to add port to server: No address added out of total 1 resolved for '[::]:45991'",
    ),
    ("Orbax", ORBAX, 1, 2, "PermissionError: [Errno 13] Permission denied: '/fsx/runs/0.orbax-checkpoint-tmp'"),
    (
        "a failed check of XLA", f"2026-11-26 09:11:12.123456: F external/xla/xla/status_macros.cc:54] Check failed: shape.has_value() (0 vs. 1)\n{STACK}", 134, 1,
        f"{ABORTED}. The last exception of its log: Check failed: shape.has_value() (0 vs. 1)",
    ),
    (
        "an assertion of C", "step 1\npython3: nrt.cc:12: void f(int): Assertion `a > 0' failed.\n", 134, 1,
        f"{ABORTED}. The last exception of its log: python3: nrt.cc:12: void f(int): Assertion `a > 0' failed.",
    ),
    ("a broken heap", "0: step 1\n0: double free or corruption (!prev)\n", 134, 2, f"{ABORTED}. The last exception of its log: double free or corruption (!prev)"),
    (
        "a failed check of protobuf", "[libprotobuf FATAL google/protobuf/message.cc:12] CHECK failed: (bytes) == (2)\n", 134, 1,
        f"{ABORTED}. The last exception of its log: CHECK failed: (bytes) == (2)",
    ),
    ("addresses alone", f"no tokens in /fsx\n{STACK}", 3, 1, "the last line of its log: no tokens in /fsx"),
    ("syntax", '  File "t.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n', 1, 1, "SyntaxError: invalid syntax"),
    (
        "torchrun", EINOPS + TORCHRUN.format(code=1, traceback=SEE), 1, 1, EINOPS_SAID,
    ),
    ("torchrun alone", "begin\n" + TORCHRUN.format(code=-9, traceback=SEE), 1, 1, KILLED),
    ("torchrun after sys.exit", "no tokens in /fsx\n" + TORCHRUN.format(code=1, traceback=SEE), 1, 1, "rank 3 ended with exit code 1. The last line of its log: no tokens in /fsx"),
    (
        "torchrun, a wrong option", torchrun(2, "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --learning-rte 1\n"), 1, 1,
        "rank 3 ended with exit code 2. The last line of its log: train.py: error: unrecognized arguments: --learning-rte 1",
    ),
    (
        "torchrun, a text of sys.exit before steps of others", torchrun(1, "train.py: the data set /fsx/none has no files\nstep 7 loss 0.4286\n"), 1, 1,
        "rank 3 ended with exit code 1. The last line of its log: train.py: the data set /fsx/none has no files",
    ),
    ("torchrun, a code alone", torchrun(3, ""), 1, 1, "rank 3 ended with exit code 3. The last line of its log: step 6 loss 0.5"),
    ("torchrun, a killed worker", torchrun(-9, ""), 1, 1, KILLED),
    ("torchrun, an abort", torchrun(-6, ""), 1, 1, "killed by signal 6 (SIGABRT), it ended itself, and its last lines have the reason"),
    ("torchrun, a worker that something ended", torchrun(-15, ""), 1, 1, "killed by signal 15 (SIGTERM), something told it to end"),
    ("torchrun, an exception", torchrun(1, EINOPS), 1, 1, EINOPS_SAID),
    (
        "torchrun with the traceback",
        TORCHRUN.format(code=1, traceback=EINOPS.replace("\n", "\n  ").rstrip()), 1, 1, EINOPS_SAID,
    ),
    ("labels of ranks", mixed(*(labelled(EINOPS, f"[rank{n}]:") for n in range(4))), 1, 1, EINOPS_SAID),
    ("labels of srun", mixed(*(labelled(EINOPS, f"{n:02}: ") for n in range(4))), 1, 1, EINOPS_SAID),
    ("labels of torchrun", mixed(*(labelled(CHAINED, f"[default{n}]:") for n in range(3))), 1, 1, "mine.BadShard: shard 7 of /fsx/tokens is cut off"),
    (
        "a worker that another has left",
        labelled(EINOPS, "[rank1]:") + labelled("Traceback (most recent call last):\n  File\ntorch.distributed.DistBackendError: gone\n", "[rank0]:"),
        1, 1, EINOPS_SAID,
    ),
    (
        "while Python ends",
        EINOPS + "Exception ignored in: <function X.__del__ at 0x7f>\nTraceback (most recent call last):\n  File\nAttributeError: closed\n",
        1, 1, EINOPS_SAID,
    ),
    (
        "a group",
        "  + Exception Group Traceback (most recent call last):\n  |   File \"t.py\", line 1\n  | ExceptionGroup: all (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n    | ValueError: no tokens\n    +------------------------------------\n",
        1, 1, "ValueError: no tokens",
    ),
    (
        "a message of several lines",
        "Traceback (most recent call last):\n  File\nRuntimeError: Error(s) in loading state_dict for Llama:\n\tsize mismatch for lm_head.weight\n",
        1, 1, "RuntimeError: Error(s) in loading state_dict for Llama: size mismatch for lm_head.weight. The checkpoint is of another model, or of another "
        "division over NeuronCores. Use the model's own settings, and the tensor and pipeline parallelism it was saved with; or convert the checkpoint",
    ),
    ("no exception", "train.py: error: unrecognized arguments: --modle\n\n====\n", 2, 1, "the last line of its log: train.py: error: unrecognized arguments: --modle"),
    ("nothing", "", 1, 1, ""),
    ("no code", "some line\n", None, 1, ""),
    (
        "an exception before a kill", EINOPS, 137, 1,
        f"{KILLED}. The last exception of its log: {EINOPS_SAID}",
    ),
    (
        "a lock of long ago", LOCKED, 1, 1,
        "It waited for a lock in the compile cache; of a compiler that was killed, it waits for ever. If no neuronx-cc runs on the node, "
        f"submit it with another --cache. The log has: {LOCKED.strip()}",
    ),
    ("a lock before the end", LOCKED + "Compiler status PASS\n", 1, 1, "the last line of its log: Compiler status PASS"),
    (
        "a warning that is the exception", "Traceback (most recent call last):\n  File\nOSError: [Errno 24] Too many open files\n", 1, 1,
        "OSError: [Errno 24] Too many open files. A process may not open enough files; each worker holds many connections. "
        "Raise the limit to 65535 (`ulimit -n`); the node scripts set it, so check an own image or container",
    ),
    (
        "a cause before 128 tracebacks", F137 + "".join(labelled(EINOPS.replace("ModuleNotFoundError: No module named 'einops'", "RuntimeError: no graph"), f"[rank{n}]:") for n in range(128)), 1, 2,
        "RuntimeError: no graph. The compiler was killed, mostly because the node's memory was full. Compile fewer graphs at once, or use a smaller "
        f"graph or batch. The log has: {F137.strip()}",
    ),
    (
        "no memory of a GPU", "Traceback (most recent call last):\n  File\ntorch.OutOfMemoryError: CUDA out of memory. Tried\n", 1, 1,
        "torch.OutOfMemoryError: CUDA out of memory. Tried",
    ),
    (
        "Slurm's message", "slurmstepd: error: Detected 1 oom_kill event in StepId=12.batch. Some of the step tasks have been OOM Killed.\nstep 1\n", 137, 1,
        f"{KILLED}. The node's memory was full, and the kernel killed a process. Use fewer data loader workers or compiler processes. The log has: "
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.batch. Some of the step tasks have been OOM Killed.",
    ),
]  # fmt: skip


def said(log: str, size: int = 65_536, clock: Iterator[float] | None = None) -> Said:
    data, made = log.encode(), Collector(lambda: next(clock)) if clock else Collector()
    for at in range(0, len(data), size):
        made.feed(data[at : at + size])
    return made.close()


MANY = "".join(f"[rank{n % 32}]:step {n}, no error\n" for n in range(100_000))


@pytest.mark.parametrize(
    ("log", "raised", "rank"),
    [
        (labelled(EINOPS, "[rank5]:") + MANY + labelled(EINOPS.replace("einops", "b"), "[rank6]:"), ("ModuleNotFoundError: No module named 'einops'",), 5),
        (EINOPS + MANY + CHAINED, ("mine.BadShard: shard 7 of /fsx/tokens is cut off", "ModuleNotFoundError: No module named 'einops'"), -1),
        (CHAINED, ("mine.BadShard: shard 7 of /fsx/tokens is cut off",), -1),
        (CHAINED.replace("During handling of the above exception, another exception occurred", "The above exception was the direct cause of the following exception"), ("mine.BadShard: shard 7 of /fsx/tokens is cut off",), -1),
        (EINOPS + TORCHRUN.format(code=1, traceback=SEE), ("ModuleNotFoundError: No module named 'einops'",), 3),
        (MANY, (), -1),
        ("Traceback (most recent call last):\n" + "  x\n" * 20_000 + "KeyError: 1\n", ("KeyError: 1",), -1),
        ("\n".join(f"Traceback (most recent call last):\n  File\nKeyError: {n}" for n in range(20_000)), ("KeyError: 19999", "KeyError: 0"), -1),
    ],
)  # fmt: skip
def test_exceptions_are_kept_however_long_ago(log: str, raised: tuple[str, ...], rank: int) -> None:
    found = said(log)
    assert (found.raised, found.rank) == (raised, rank)


def test_an_exception_of_long_ago_was_survived() -> None:
    times = iter([1000.0, 5000.0, 5001.0])
    log = "".join(f"Traceback (most recent call last):\n  File\nKeyError: {n}\n" for n in "abc")
    found = said(log, clock=times)
    assert (found.raised, found.at) == (("KeyError: c", "KeyError: b"), 5000.0)


def test_lines_are_few_and_short() -> None:
    """The first ones and the last ones; those that tell of a serious error are kept apart, and of those with other numbers the first."""
    words = [f"{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}" for n in range(500)]
    log = (
        "".join(f"{word} failed {'x' * 500}\n" for word in words)
        + F137
        + "".join(f"{word} failed again\n" for word in words)
        + F137 * 100
        + "end\n"
    )
    lines = said(log).lines
    assert len(lines) <= 21
    assert max(map(len, lines)) == 300
    assert [line[:9] for line in lines] == [f"a{c} failed" for c in "abcdef"] + [F137[:9]] + [
        f"{w} failed" for w in words[-4:]
    ] + ["end"]


FAILED = Failure(1, 1, "the runner's words", 5.0, 37, Said(raised=("KeyError: 'x'",), line="step 3", lines=("step 3",)))


@pytest.mark.parametrize(
    ("stage", "nodes", "why"),
    [
        (Stage("train", "1", "FAILED", failure=FAILED), 2, "node 1, rank 37: KeyError: 'x'"),
        (Stage("train", "1", "FAILED", failure=replace(FAILED, rank=None)), 1, "KeyError: 'x'"),
        (Stage("train", "1", "FAILED", failure=replace(FAILED, code=137, kills=1)), 1, "rank 37: killed by signal 9 (SIGKILL), because the node's memory was full. The last exception of its log: KeyError: 'x'"),
        (Stage("train", "1", "FAILED", failure=replace(FAILED, kills=1)), 1, "rank 37: a process of it was killed, because the node's memory was full. The last exception of its log: KeyError: 'x'"),
        (Stage("train", "1", "FAILED", failure=replace(FAILED, code=143, stopped=True)), 1, "rank 37: KeyError: 'x'"),
        (Stage("train", "1", "FAILED", failure=Failure(1, 3, "ValueError: of an older runner", 5.0)), 2, "node 1: ValueError: of an older runner"),
        (Stage("train", "1", "FAILED", "exit code 3", failure=Failure(0, 3, "", 5.0)), 1, "exit code 3"),
        (Stage("train", "1", "FAILED", "exit code 3"), 1, "exit code 3"),
        (Stage("train", "1", "OUT_OF_MEMORY", "OutOfMemory"), 1, "killed by signal 9 (SIGKILL), because the node's memory was full"),
        (Stage("train", "1", "OUT_OF_MEMORY", "was killed: it needed more than its memory"), 1, "was killed: it needed more than its memory"),
        (Stage("train", "1", "TIMEOUT", "reached its time limit", exit_code=143), 1, "reached its time limit"),
        (
            Stage("train", "1", "TIMEOUT", "reached its time limit", failure=Failure(0, 143, said=Said(lines=(LOCKED.strip(),)), stopped=True)), 1,
            "reached its time limit. It waited for a lock in the compile cache; of a compiler that was killed, it waits for ever. If no neuronx-cc runs on the "
            f"node, submit it with another --cache. The log has: {LOCKED.strip()}",
        ),
        (Stage("train", "1", "TIMEOUT", "reached its time limit", failure=replace(FAILED, stopped=True)), 2, "node 1, rank 37: reached its time limit. The first exception of its log: KeyError: 'x'"),
        (Stage("train", "1", "CANCELLED", exit_code=143, failure=FAILED), 1, ""),
        (Stage("train", "1", "COMPLETED", exit_code=0), 1, ""),
    ],
)  # fmt: skip
def test_why_a_stage_ended(stage: Stage, nodes: int, why: str) -> None:
    assert with_reason(stage, nodes).why == why


@pytest.mark.parametrize(("log", "code", "nodes", "why"), [one[1:] for one in ENDINGS], ids=[one[0] for one in ENDINGS])
@pytest.mark.parametrize("size", [1, 7, 65_536])
def test_why_it_ended(log: str, code: int | None, nodes: int, why: str, size: int) -> None:
    """In pieces of any size."""
    assert why_it_ended(said(log, size), code, nodes, error_patterns()) == why


def test_no_log_takes_long() -> None:
    began = time.process_time()
    for piece in (
        "1: ",
        "[rank1]:",
        "(a pid=1) ",
        "a.",
        "| ",
        "+-",
        "Traceback (most recent call last):",
        "E:",
        "  File\n",
        "\x1b[",
        "exitcode :",
    ):
        why_it_ended(said(piece * 200_000), 1, 2, error_patterns())
    assert time.process_time() - began < 10
