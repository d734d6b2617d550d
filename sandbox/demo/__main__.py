"""`make demo`: the complete workflow on this machine, without an account."""

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
from sandbox.demo.slurm import REPORT
from sandbox.kubernetes import KubernetesFailed
from sandbox.local_aws import LocalAws, SandboxError
from sandbox.slurm_layout import SlurmFailed


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.demo", description=__doc__)
    parser.add_argument(
        "--path",
        choices=["all", "slurm", "eks", "pcs"],
        default="all",
        help="which stack; all: slurm and eks (%(default)s)",
    )
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
            print("\nThe demo was interrupted; everything that it started was stopped.", file=sys.stderr)
            return 130


def _skipped(path: str) -> list[str]:
    """The parts of a path that this machine cannot run, with the reasons."""
    found = []
    if path != "eks" and (reason := local_slurm.available()):
        found.append(f"training on a local Slurm ({reason})")
    if path in ("all", "eks") and (reason := eks.unavailable()):
        found.append(f"jobs on a real Kubernetes API ({reason})")
    return found


def _tell(aws: LocalAws, directory: Path, options: argparse.Namespace, skipped: list[str]) -> int:
    own = {**plain_environment(aws.env), "XDG_CONFIG_HOME": str(directory / "config")}  # no file of `trn use`
    narrator = Narrator(own, paths.HOME, directory / "cdk.out")
    REPORT.unlink(missing_ok=True)  # an earlier demo's
    narrator.step("bootstrap a local AWS: an empty account")
    seed_datasets(aws.client("s3"))  # public data, not a leftover
    aws.bootstrap()
    if options.path in ("all", "slurm"):
        slurm.run(narrator, aws, directory, options.nodes, options.steps)
    if options.path == "pcs":
        slurm.run(narrator, aws, directory, options.nodes, options.steps, "TrnPcsStack")
    if options.path in ("all", "eks"):
        eks.run(narrator, aws, directory)

    narrator.step("what is left in the account")
    left = aws.leftovers()
    for kind, names in left.items():
        narrator.print(f"{kind}: {', '.join(names)}")
    narrator.print("resources were left behind" if left else "nothing except the CDK's bootstrap")
    for what in skipped:
        narrator.print(f"skipped on this machine: {what}")
    if REPORT.exists():
        narrator.print(f"the report of the training: {REPORT}")
    narrator.print(f"done in {narrator.elapsed:.0f} s")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
