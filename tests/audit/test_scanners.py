"""Each scanner reports a bad example."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from audit import scanners, subjects
from audit.findings import ScannerFailed, Subjects
from audit.scanners import files
from audit.scanners.process import THERE, run
from tests.support import need

HERE = Path(__file__).parent
SEEN = [
    ("checkov", "CKV_AWS_24", "Door"),
    ("checkov", "CKV_AWS_58", "Cluster"),
    ("cfn-lint", "E3030", "Wrong"),
    ("cloudformation-validate", "E1151", "Door"),
    ("AwsSolutions", "AwsSolutions-EKS1", "Cluster"),
    ("AwsSolutions", "AwsSolutions-EKS2", "Cluster"),
    ("AwsSolutions", "AwsSolutions-EC23", "Door"),
    ("NIST.800.53.R5", "NIST.800.53.R5-EC2RestrictedSSH", "Door"),
    ("cfn-guard", "CT.EKS.PR.1", "Cluster"),
    ("cfn-guard", "CT.EC2.PR.1", "Node"),
    ("cluster-configuration", "HeadNode.Ssh.AllowedIps", "Slurm"),
    ("checkov-kubernetes", "CKV_K8S_16", "mine/Pod.default.bad"),
    ("shellcheck", "SC2086", "Node"),
]


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Subjects:
    need(THERE.exists(), f"the scanners are not installed ({THERE}): make audit")
    folder = tmp_path_factory.mktemp("bad")
    made = subjects.given(folder, [HERE / "bad_template.yaml"])
    objects = folder / "objects" / "bad.pod.yaml"
    objects.parent.mkdir()
    shutil.copy(HERE / "bad_pod.yaml", objects)
    return Subjects(templates={"bad": next(iter(made.templates.values()))}, objects={"bad:mine": objects})


@pytest.mark.parametrize(("scanner", "rule", "resource"), SEEN)
def test_a_scanner_reports_a_bad_example(scanner: str, rule: str, resource: str, bad: Subjects) -> None:
    found = [f for f in scanners.ALL[scanner](bad) if f.subject == "bad"]
    assert [f for f in found if f.rule.startswith(rule) and f.resource == resource], found
    assert all(f.scanner == scanner and f.message for f in found)


def test_a_failed_scanner_is_not_a_clean_result(tmp_path: Path) -> None:
    with pytest.raises(ScannerFailed, match="no-such-program is not installed: run `make audit`"):
        run([tmp_path / "no-such-program"])
    with pytest.raises(ScannerFailed, match="sh ended with code 7:\nreason"):
        run(["sh", "-c", "echo reason >&2; exit 7"])


def test_other_files_than_templates_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: 1\n")
    with pytest.raises(ValueError, match="is not a CloudFormation template: it has no Resources"):
        subjects.given(tmp_path, [tmp_path / "x.yaml"])


def test_a_secret_in_a_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The detectors are called before a file is scanned, which must lose no finding."""
    (tmp_path / "clean.py").write_text("x = 1\n")
    (tmp_path / "key.py").write_text("x = 1\nkey = '" + "AKIA" + "QYLPMN5H" * 2 + "'\n")
    (tmp_path / "word.yaml").write_text("a: 1\npass" + "word: a-long-one-of-mine\n")
    monkeypatch.setattr(files, "ROOT", tmp_path)
    monkeypatch.setattr(files, "tracked", lambda: ["clean.py", "key.py", "word.yaml"])
    found = {(f.resource, f.rule, f.message) for f in files.detect_secrets(Subjects())}
    assert found == {("key.py", "AWS Access Key", "line 2"), ("word.yaml", "Secret Keyword", "line 2")}
