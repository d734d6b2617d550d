"""What is made in the sandbox says so at its top, and what is made on AWS does not: pages, tables, views, exports, JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_clusters import NODES
from tests.cli.test_watch import PROGRAM as WATCH
from tests.jobs.report.test_export import Jobs
from trainium_cdk._aws import SANDBOX
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.cli import follow, nodes, report
from trainium_cdk.client.jobs import connection
from trainium_cdk.client.jobs.status import JobStatus, LogChunk, Node

HERE = "http://127.0.0.1:1"
"""Nothing answers there, and nothing is asked: the clusters are those of other tests."""


class Cluster(Jobs):
    names_jobs = False

    def logs(self, id: str, *, stage: str | None = None, changed: Any = None, **_: object) -> Iterator[LogChunk]:
        if changed:
            changed(self.status(id))
        return super().logs(id, stage=stage or "train")

    def nodes(self) -> tuple[Node, ...]:
        return tuple(NODES["TrnPclusterStack"])

    def list(self, limit: int) -> tuple[JobStatus, ...]:
        return (self.status("a-1"),)

    def listed(self, limit: int) -> tuple[tuple[JobStatus, ...], tuple[()]]:
        return self.list(limit), ()


@pytest.fixture(params=[True, False], ids=["sandbox", "aws"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    for module in (nodes, follow, report):
        monkeypatch.setattr(module, "backend", lambda *_: Cluster())
    listed = connection.ListedCluster("us-east-1", "TrnPclusterStack", "slurm", "CREATE_COMPLETE", 2)
    monkeypatch.setattr(connection, "list_clusters", lambda *_: ([listed], []))
    if request.param:
        monkeypatch.setenv("AWS_ENDPOINT_URL", HERE)
    return bool(request.param)


def trn(*words: str) -> None:
    cli.app([*words], standalone_mode=False)


@pytest.mark.parametrize(
    ("variables", "config", "expected"),
    [
        ({}, "", False),
        ({"AWS_ENDPOINT_URL": HERE}, "", True),
        ({"AWS_ENDPOINT_URL": "http://localhost:4566"}, "", True),
        ({"AWS_ENDPOINT_URL": "http://[::1]:4566"}, "", True),
        ({"AWS_ENDPOINT_URL": "https://vpce-1.ssm.us-east-1.vpce.amazonaws.com"}, "", False),
        ({"AWS_ENDPOINT_URL_SSM": HERE}, "", True),
        ({"AWS_ENDPOINT_URL_CLOUDFORMATION": HERE, "AWS_REGION": "us-west-2"}, "", True),
        ({"AWS_ENDPOINT_URL": HERE, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "", False),
        ({"AWS_PROFILE": "local"}, f"[profile local]\nendpoint_url = {HERE}\n", True),
        ({"AWS_PROFILE": "missing"}, "", False),
    ],
)
def test_which_endpoint_is_the_sandbox(variables: dict[str, str], config: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(config)
    ask = "from trainium_cdk._aws import sandboxed; print(sandboxed())"
    env = {
        "PATH": "/usr/bin",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
        **variables,
    }
    done = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == f"{expected}\n", done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("nodes",),
        ("clusters", "--region", "us-east-1"),
        ("list",),
        ("status", "a-1"),
        ("logs", "a-1"),
    ],
    ids=lambda words: words[0],
)
def test_a_table_begins_with_it(
    words: tuple[str, ...], sandbox: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    trn(*words)
    said = capfd.readouterr().err
    assert said.count(SANDBOX) == sandbox
    if sandbox and words[0] != "logs":  # whose log comes first: it is the job's own
        assert said.startswith(SANDBOX)


@pytest.mark.parametrize(
    "words",
    [("nodes",), ("clusters", "--region", "us-east-1"), ("list",), ("status", "a-1")],
    ids=lambda words: words[0],
)
def test_json_has_a_field(words: tuple[str, ...], sandbox: bool, capfd: pytest.CaptureFixture[str]) -> None:
    trn(*words, "--json")
    found = json.loads(capfd.readouterr().out)
    rows = found if isinstance(found, list) else [found]
    assert rows
    assert {row["sandbox"] for row in rows} == {sandbox}


def first_words(page: str) -> str:
    """The text of a page's body from its beginning."""
    return re.sub(r"<[^>]+>", " ", page.partition("<body")[2].partition(">")[2]).strip()


def test_the_report_begins_with_it(sandbox: bool, tmp_path: Path) -> None:
    trn("report", "a-1", "-o", str(tmp_path / "a.html"))
    page = (tmp_path / "a.html").read_text()
    assert first_words(page).startswith(SANDBOX if sandbox else "Training report: a-1")
    assert (SANDBOX in page) == sandbox


@pytest.mark.parametrize("words", [("status", "a-1", "--watch"), ("list", "--watch")], ids=["job", "jobs"])
def test_the_views_of_a_terminal_begin_with_it(
    words: tuple[str, ...], sandbox: bool, terminal: Callable[..., tuple[int, str]]
) -> None:
    keys = [("b-2", b"\x03")] if words[0] == "list" else []
    _, seen = terminal(*words, keys=keys, program=WATCH)
    assert (SANDBOX in seen) == sandbox
    if sandbox:
        assert seen.index(SANDBOX) < seen.index("RUNNING")


def test_list_prices_of_the_catalogue_are_real_everywhere(sandbox: bool, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked of an endpoint."""
    trn("cost", "--environment", str(Path(__file__).parents[1] / "environments/tutorial.yaml"))
    assert SANDBOX not in capfd.readouterr().err
