"""Words of other programs on the command line: understood, or answered."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests.support import table
from trainium_cdk.cli.app import app

RUN = CliRunner()


@pytest.mark.parametrize(("line", "code", "message"), table(__file__, "kinds before options"))
def test_a_kind_is_judged_before_its_options(line: str, code: int, message: str) -> None:
    done = RUN.invoke(app, line.split(), prog_name="trn")
    said = done.stderr + str(done.exception)
    assert (done.exit_code, message in said) == (code, True), said
