"""A real slurmctld of this machine is asked about the settings of slurm.conf: the sandbox's."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import slurm_packages
from sandbox.slurm_layout import command_path
from sandbox.testing import need_slurm
from trainium_cdk import settings
from trainium_cdk.description.checks.slurm_controller import SECONDS, ask

BASE = "region: us-east-1\nnetwork: {zone_ids: [use1-az6]}\n"


@pytest.fixture
def slurmctld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sandbox's, which needs to know where its plug-ins are; the configuration that it was given is kept beside it."""
    need_slurm()
    unpacked, kept = slurm_packages.unpacked(), tmp_path / "given.conf"
    plugins = f'echo "PluginDir={unpacked.plugins}" >> "$3"' if unpacked else ":"
    program = tmp_path / "slurmctld"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -V ] || {{ cp "$3" {kept}; {plugins}; }}\nexec {command_path("slurmctld")} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("TRN_SLURMCTLD", str(program))
    return kept


def said(lines: str) -> str:
    return ask(settings.parse(f"{BASE}pcluster: {{slurm_settings: {lines}}}", "environment.yaml"), "slurm")


def test_what_it_refuses_and_takes(slurmctld: Path) -> None:
    assert "sched/backfil" in (refused := said("[{SchedulerType: sched/backfil}]"))
    assert refused.startswith("warning: slurm.conf: slurmctld 22.")
    assert "of this machine takes it" in said("[{MaxJobCount: 20000}, {SchedulerType: sched/builtin}]")


def test_it_gets_no_program_no_path_and_nothing_that_only_later_releases_know(slurmctld: Path) -> None:
    lines = "[{SlurmctldPrimaryOnProg: touch}, {MailDomain: a.example}, {TmpFS: /tmp}, {MetricsType: metrics/openmetrics}, {SlurmctldPort: 1}]"
    assert "takes it" in said(lines)
    given = slurmctld.read_text()
    assert "MailDomain=a.example" in given
    assert not [name for name in ("PrimaryOnProg", "TmpFS", "MetricsType", "Port=1\n") if name in given]
    assert "(127.0.0.1)" in given
    assert "NoCtldInAddrAny" in given


def test_of_a_pcs_cluster(slurmctld: Path) -> None:
    environment = settings.parse(f"{BASE}pcs: {{slurm_settings: {{PreemptMode: REQUEUE}}}}", "environment.yaml")
    assert "PreemptType and PreemptMode values incompatible" in ask(environment, "pcs")


def test_none_there_none_needed_and_one_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRN_SLURMCTLD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert said("[{MaxJobCount: 20000}]").startswith("slurm.conf: no slurmctld was asked")
    assert said("[]") == ""
    program = tmp_path / "slurmctld"
    program.write_text('#!/bin/sh\n[ "$1" = -V ] && echo slurm-wlm 22.05.8 && exit\nexec /bin/sleep 600\n')
    program.chmod(0o755)
    assert said("[{MaxJobCount: 20000}]").endswith(f"slurmctld 22.05.8 of this machine is not ready after {SECONDS} s")
