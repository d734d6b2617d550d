"""A training whose steps can be counted, and which can be made to hang, or to lose its loss."""

TRAINS = '''
"""Steps that all nodes do together; a checkpoint every fifth. FAULT on node BAD from step AT on, in the attempts before UNTIL; `pause` and
`mute` end when the job's folder has a file `go`."""
import json, os, signal, subprocess, sys, time
from pathlib import Path

node, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])

def number(name, otherwise):
    return int(os.environ.get(name) or otherwise)

fault, bad, at, until, steps = os.environ.get("FAULT", ""), number("BAD", 1), number("AT", 24), number("UNTIL", 99), number("STEPS", 30)
folder = Path(os.environ.get("JOB") or Path.cwd().parent)
attempt = number("TRN_AGAIN", 0) or number("TRN_ATTEMPT", 0) or number("SLURM_RESTART_COUNT", 0)
with (folder / "begun").open("a") as begun:
    begun.write(f"{attempt} {node} {os.getpid()} {time.time()}\\n")

def save(*_):
    print("is told to save", flush=True)
    if node == 0:
        (folder / "saved").write_text(str(step))
    time.sleep(0.5)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
saved = [sys.argv[1]] if len(sys.argv) > 1 else (folder / "output").glob("step-*") if attempt else []
step = max((int(Path(one).name.rpartition("-")[2]) for one in saved), default=0)
print(f"begins after step {step}", flush=True)
meeting = folder / f"meeting-{attempt}"
meeting.mkdir(exist_ok=True)

def stuck_in_a_collective():
    while not (folder / "go-on").exists():
        time.sleep(0.05)

while step < steps:
    step += 1
    broken = fault and node == bad and step >= at and attempt < until
    if broken and fault in ("pause", "mute") and (folder / "go").exists():
        broken, bad = False, -1
    while broken and fault == "pause" and not (folder / "go").exists():
        time.sleep(0.05)
    if broken and fault == "hang":
        print("waits for a device", flush=True)
        stuck_in_a_collective()
        bad = -1
    (meeting / f"{step}.{node}").touch()
    while len(list(meeting.glob(f"{step}.*"))) < nodes:
        time.sleep(0.02)
    loss = float("nan") if broken and fault == "nan" else 4 - step / 10
    time.sleep(float(os.environ.get("SLOW", "0.15")))
    if "QUIET" in os.environ:
        Path(os.environ["TRN_PROGRESS"]).write_text(json.dumps({"step": step, "loss": loss, "rank": 7}))
    elif not (broken and fault == "mute"):
        print(f"step {step}/{steps} | loss {loss:.3f}", flush=True)
    if broken and fault == "neuronx-cc":  # a compiler that says nothing
        bad, compiler = -1, folder / "neuronx-cc"
        compiler.write_text(f"#!/bin/sh\\nsleep {number('LONG', 6)}\\n")
        compiler.chmod(0o755)
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
        subprocess.run(["neuronx-cc", "compile", "module.mlir", "--framework", "XLA", "--target", "trn2"])  # as TorchNeuron does
        time.sleep(1)
    if broken and fault == "grows":  # a checkpoint that is written, without a word
        bad, one = -1, folder / "output" / "part"
        one.mkdir(parents=True, exist_ok=True)
        for _ in range(16):
            with (one / "weights").open("a") as file:
                file.write("x")
            time.sleep(0.5)
    if broken and fault == "bar":  # an evaluation of Hugging Face's Trainer, which has a bar and no word
        for one in range(number("LONG", 8)):
            print(f"\\r {one}%|    | {one}/500 [00:{one:02}<08:20,  1.00s/it]", end="", flush=True)
            time.sleep(1)
        bad = -1
    if broken and fault in ("Compiling module MODULE_1", "Saving checkpoint", "Evaluating", "***** Running Evaluation *****", "merges the adapters"):
        print(fault, flush=True)
        time.sleep(number("LONG", 8))
        bad = -1
    if step % 5 == 0 and node == 0 and loss == loss:
        one = folder / "output" / f"step-{step}"
        one.mkdir(parents=True, exist_ok=True)
        (one / "weights").write_bytes(bytes(number("WEIGHTS", 1)))
        (one / "done").write_text("x")
print(f"ends at step {step}", flush=True)
'''
