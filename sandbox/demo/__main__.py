"""`make demo`: everything, on this machine, without an account."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from sandbox import paths
from sandbox import slurm as local_slurm
from sandbox.datasets import seed_datasets
from sandbox.demo import eks, slurm
from sandbox.demo.narrator import Narrator, StepFailed, plain_environment
from sandbox.kubernetes import KubernetesFailed
from sandbox.local_aws import LocalAws, SandboxError
from sandbox.slurm_layout import SlurmFailed


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.demo", description=__doc__)
    parser.add_argument("--path", choices=["all", "slurm", "eks"], default="all", help="which stack (%(default)s)")
    parser.add_argument("--nodes", type=int, default=16, help="nodes of the training job (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="training steps (%(default)s)")
    options = parser.parse_args(arguments)
    skipped = _skipped(options.path)
    if skipped:
        print(f"Skipped on this machine: {'; '.join(skipped)}.", flush=True)
    with tempfile.TemporaryDirectory(prefix="trn-demo-") as folder:
        directory = Path(folder)
        try:
            with LocalAws.start(directory / "aws") as aws:
                return _tell(aws, directory, options, skipped)
        except (StepFailed, SandboxError, SlurmFailed, KubernetesFailed) as e:
            print(f"\nThe demo stopped: {e}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nThe demo was interrupted; all it had started is stopped.", file=sys.stderr)
            return 130


def _skipped(path: str) -> list[str]:
    """What this machine cannot run of a path, each with the reason."""
    found = []
    if path != "eks" and (reason := local_slurm.available()):
        found.append(f"training on a local Slurm ({reason})")
    if path != "slurm" and (reason := eks.unavailable()):
        found.append(f"jobs on a real Kubernetes API ({reason})")
    return found


def _tell(aws: LocalAws, directory: Path, options: argparse.Namespace, skipped: list[str]) -> int:
    narrator = Narrator(plain_environment(aws.env), paths.HOME, directory / "cdk.out")
    narrator.step("bootstrap a local AWS: an account with nothing in it")
    seed_datasets(aws.client("s3"))  # public data: there before us, and after us
    aws.bootstrap()
    if options.path != "eks":
        slurm.tell(narrator, aws, directory, options.nodes, options.steps)
    if options.path != "slurm":
        eks.tell(narrator, aws, directory)

    narrator.step("what is left in the account")
    left = aws.leftovers()
    for kind, names in left.items():
        narrator.say(f"{kind}: {', '.join(names)}")
    narrator.say("something was left behind" if left else "nothing, beside the CDK's own bootstrap")
    for what in skipped:
        narrator.say(f"skipped on this machine: {what}")
    narrator.say(f"done in {narrator.elapsed:.0f} s")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
