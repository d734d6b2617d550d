"""`make demo`: the complete workflow on this machine, without an account."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from sandbox import paths
from sandbox import slurm as local_slurm
from sandbox.datasets import seed_datasets
from sandbox.demo import slurm
from sandbox.demo.narrator import Narrator, StepFailed, plain_environment
from sandbox.demo.slurm import REPORT
from sandbox.local_aws import LocalAws, SandboxError
from sandbox.slurm_layout import SlurmFailed

SEEN = (
    "A file described a cluster. One command submitted a training, and one followed it.",
    "A job failed, and its status said why and what to do. At the end nothing was left that costs.",
)
NEXT = (
    "trn init      # describes your own cluster, and says the least that you must pay",
    "trn check     # asks your account what is possible; it spends nothing",
    "docs/start/first-fine-tuning.md has every step on AWS, with its output",
)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.demo", description=__doc__)
    parser.add_argument("--path", choices=["slurm", "eks", "pcs"], default="slurm", help="which stack (%(default)s)")
    parser.add_argument("--tutorial", action="store_true", help="BERT-Large on the Trn1 cluster of AWS's tutorials")
    parser.add_argument("--nodes", type=int, help="nodes of the training job (2; 16 of the tutorial)")
    parser.add_argument("--steps", type=int, default=20, help="training steps (%(default)s)")
    options = parser.parse_args(arguments)
    training = slurm.PCS if options.path == "pcs" else slurm.SLURM
    if options.tutorial:
        training, options.path = slurm.TUTORIAL, "slurm"
    skipped = _skipped(options.path)
    if skipped:
        print(f"Skipped on this machine: {'; '.join(skipped)}.", flush=True)
    with tempfile.TemporaryDirectory(prefix="trn-demo-") as folder:
        directory = Path(folder)
        try:
            with LocalAws.start(directory / "aws", training.region) as aws:
                return _tell(aws, directory, training, options, skipped)
        except (StepFailed, SandboxError, SlurmFailed) as e:
            print(f"\nThe demo stopped: {e}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nThe demo was interrupted; everything that it started was stopped.", file=sys.stderr)
            return 130


def _skipped(path: str) -> list[str]:
    """The part of a path that this machine cannot run, with the reason."""
    if path != "eks":
        return [f"training on a local Slurm ({reason})"] if (reason := local_slurm.available()) else []
    from sandbox.demo import eks

    return [f"jobs on a real Kubernetes API ({reason})"] if (reason := eks.unavailable()) else []


def _tell(
    aws: LocalAws, directory: Path, training: slurm.Training, options: argparse.Namespace, skipped: list[str]
) -> int:
    own = {**plain_environment(aws.env), "XDG_CONFIG_HOME": str(directory / "config")}  # no file of `trn use`
    project = directory / "project"  # an empty folder, where `trn init` writes the file and the app
    project.mkdir()
    narrator = Narrator(own, paths.HOME if training.file or options.path == "eks" else project, directory / "cdk.out")
    REPORT.unlink(missing_ok=True)  # an earlier demo's
    narrator.step("bootstrap a local AWS: an empty account")
    if training.file:  # its job reads them from S3
        seed_datasets(aws.client("s3"))  # public data, not a leftover
    aws.bootstrap()
    if options.path == "eks":
        from sandbox.demo import eks
        from sandbox.kubernetes import KubernetesFailed

        try:
            eks.run(narrator, aws, directory)
        except KubernetesFailed as e:
            raise StepFailed(str(e)) from None
    else:
        slurm.run(narrator, aws, directory, training, options.nodes or training.nodes, options.steps)

    narrator.step("what is left in the account")
    left = aws.leftovers()
    for kind, names in left.items():
        narrator.print(f"{kind}: {', '.join(names)}")
    narrator.print("resources were left behind" if left else "nothing except the CDK's bootstrap")
    for what in skipped:
        narrator.print(f"skipped on this machine: {what}")
    if REPORT.exists():
        narrator.print(f"the report of the training: {REPORT}")
    narrator.step("what you have seen")
    for line in (*(SEEN if REPORT.exists() else ()), f"It took {narrator.elapsed:.0f} s. What you can do next:", *NEXT):
        narrator.print(line)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
