"""docs/guides/capacity.md, "No capacity here": its commands as they are printed, with a Slurm cluster in each of two regions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox.paths import HOME as ROOT
from sandbox.testing import sandbox_up
from tests.sandbox import on_aws
from tests.support import need_slurm
from trainium_cdk.description.settings import load

TRAIN = """\
import os, pathlib

folder = pathlib.Path(os.environ["TRN_CHECKPOINTS"])
done = max((int(file.stem) for file in folder.glob("*.step")), default=0)
(folder / f"{done + 10}.step").mkdir()
(folder / f"{done + 10}.step/COMPLETE").touch()
print(f"steps {done} to {done + 10}", flush=True)
"""


def commands() -> list[str]:
    page = (ROOT / "docs/guides/capacity.md").read_text("utf-8").partition("## No capacity here")[2]
    block = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    return [line.partition("  #")[0].strip() for line in block.splitlines()]


@pytest.mark.sweep
def test_every_command(tmp_path: Path) -> None:
    need_slurm()
    directory, folder = tmp_path / "sandbox", tmp_path / "checkout"
    for path in (directory, folder):
        path.mkdir()
    shell = on_aws.Shell(directory, on_aws.checkout(folder))
    (folder / "my-project").mkdir()
    (folder / "my-project/train.py").write_text(TRAIN)
    with (folder / "environment.yaml").open("a") as file:
        file.write("jobs: {keep: s3://my-bucket/checkpoints}\n")
    with sandbox_up(directory, "--slurm") as aws:
        aws.client("s3").create_bucket(Bucket="my-bucket")
        first = 'cdk bootstrap aws://ACCOUNT/us-east-2 --app ""', "cdk deploy TrnPclusterStack -c env=environment.yaml"
        for command in first:
            shell.run(command)
        logs = []
        job = ""
        for command in commands():
            printed = shell.run(command.replace("/JOB", f"/{job}"))
            job = job or printed.strip()
            if command.startswith("trn submit"):
                env = re.findall(r"--environment \S+", command)[0]
                logs.append(shell.run(f"trn logs -f {printed.strip()} {env}"))
            if command.startswith("trn capacity"):
                assert "us-east-2\ton-demand\tnow" in printed
        assert ["steps 0 to 10" in logs[0], "steps 10 to 20" in logs[1]] == [True, True], logs
        release = load(folder / "environment.yaml").release
        assert f"Neuron driver {release.dkms}, runtime {release.runtime}" in logs[0]
        kept = aws.client("s3").list_objects_v2(Bucket="my-bucket")["Contents"]
        assert {
            re.sub("/[0-9a-f]{12}/", "/", one["Key"]).split("/")[2] for one in kept if one["Key"].endswith("COMPLETE")
        } == {"10.step", "20.step"}
        shell.run("trn destroy TrnPclusterStack --environment east.yaml")
        left = {kind: names for kind, names in aws.leftovers().items() if not kind.startswith("log groups")}
        assert left == {"S3 buckets": ["my-bucket"]}, "the user's own"
