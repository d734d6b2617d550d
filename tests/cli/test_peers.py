"""Words of other programs on the command line: understood, or answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.jobs.conftest import fleet, make_cluster
from tests.support import table
from trainium_cdk.cli.app import app

RUN = CliRunner()


@pytest.mark.parametrize(("line", "code", "message"), table(__file__, "checkpoints in S3"))
def test_a_checkpoint_in_s3_is_copied_first(line: str, code: int, message: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(make_cluster(fleet("trn2.48xlarge")).model_dump_json())
    test_a_kind_is_judged_before_its_options(f"{line} --dry-run --cluster {file}", code, message)


@pytest.mark.parametrize(("line", "code", "message"), table(__file__, "kinds before options"))
def test_a_kind_is_judged_before_its_options(line: str, code: int, message: str) -> None:
    done = RUN.invoke(app, line.split(), prog_name="trn")
    said = done.stderr + str(done.exception)
    assert (done.exit_code, message in said) == (code, True), said
