"""Lines of slurm.conf that a configuration adds: the local Slurm is given what its release knows, and judges the catalogue's data."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from sandbox.slurm_config import RELEASE, lines_not_run, own_settings
from sandbox.slurm_layout import SlurmFailed, command_path
from sandbox.testing import need_slurm
from sandbox.tests.test_slurm import config, resource
from trainium_cdk.description.catalog.slurm import check_line, parameters

SAMPLES = {"uint16": "1", "uint32": "1", "uint64": "1", "boolean": "yes", "float": "1.5", "text": "x"}
BAD = {"uint16": "65536", "uint32": "many", "uint64": "-1", "boolean": "maybe", "float": "x"}
_STOPS = (
    re.compile(r"unrecognized key: (\w+)"),
    re.compile(r"error: (\w+) value .* is (?:not a valid number|greater than|less than zero)"),
    re.compile(r'is not a valid option for "(\w+)"'),
)


def refused_by_slurm(lines: list[tuple[str, str]], folder: Path) -> set[str]:
    """The parameters at which the real Slurm's parser stops."""
    file = folder / "slurm.conf"
    text = "".join(f"{name}={value}\n" for name, value in lines)
    file.write_text(f"ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\n{text}")
    done = subprocess.run(
        [command_path("scontrol"), "show", "config"],
        env={**os.environ, "SLURM_CONF": str(file)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return {name for line in done.stderr.splitlines() for form in _STOPS for name in form.findall(line)}


@pytest.mark.parametrize("values", [SAMPLES, BAD], ids=["right", "wrong"])
@pytest.mark.sweep
def test_slurms_own_parser_agrees_with_the_names_and_types(values: dict[str, str], tmp_path: Path) -> None:
    need_slurm()
    known = parameters(RELEASE)
    # those whose line has several parameters
    several = {"NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName", "SlurmctldHost"}
    lines = [(name, values[kind]) for name, kind in known.items() if kind in values and name not in several]
    unknown = [(f"{name}x", "1") for name in known] + [("MetricsType", "x")]
    ours = {name for name, value in lines + unknown if check_line(RELEASE, {name: value})}
    assert ours == refused_by_slurm(lines + unknown, tmp_path)
    assert ours >= {name for name, _ in unknown}


@pytest.mark.parametrize(
    ("line", "given", "not_run"),
    [
        ({"MaxJobCount": 20000}, ("MaxJobCount=20000",), ()),
        ({"MaxJobCont": 20000}, ("MaxJobCont=20000",), ()),
        ({"NodeName": "own-1", "CPUs": 4}, ("NodeName=own-1 CPUs=4",), ()),
        (
            {"MetricsType": "metrics/openmetrics"},
            (),
            ("MetricsType=metrics/openmetrics (Slurm 22.05 does not have MetricsType)",),
        ),
        ({"ProctrackType": "proctrack/cgroup"}, (), ("ProctrackType=proctrack/cgroup (ProctrackType is this machine's own)",)),
    ],
)  # fmt: skip
def test_lines(line: dict[str, Any], given: tuple[str, ...], not_run: tuple[str, ...]) -> None:
    assert (own_settings([line]), lines_not_run([line])) == (given, not_run)


@pytest.mark.sweep
def test_a_wrong_line_stops_the_local_slurm_as_on_aws(tmp_path: Path) -> None:
    need_slurm()
    made = config(resource(most=1))
    made["Scheduling"]["SlurmSettings"] = {"CustomSlurmSettings": [{"MaxJobCont": 20000}]}
    with pytest.raises(SlurmFailed, match="Parsing error at unrecognized key: MaxJobCont"):
        LocalSlurm.start(tmp_path, made)


@pytest.mark.sweep
def test_a_line_reaches_slurm_and_one_that_does_not_is_said(tmp_path: Path) -> None:
    need_slurm()
    made = config(resource(most=1))
    lines = [{"MaxJobCount": 20001}, {"MetricsType": "metrics/openmetrics"}]
    made["Scheduling"]["SlurmSettings"] = {"CustomSlurmSettings": lines}
    with LocalSlurm.start(tmp_path, made) as slurm:
        assert re.search(r"MaxJobCount\s+= 20001\n", slurm.run(["scontrol", "show", "config"]).stdout)
        assert [notice for notice in slurm.notices if "MetricsType" in notice and "not run here" in notice]
