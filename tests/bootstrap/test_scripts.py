"""Tests of the scripts without running a node: style, the contract of node.env, refusals of bad settings."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.bootstrap.conftest import NewNode
from tests.support import completed
from trainium_cdk.description.node import scripts
from trainium_cdk.description.node.scripts import scripts_dir

FOLDER = scripts_dir()
SHELL = sorted(FOLDER.rglob("*.sh"))
SETTINGS = (FOLDER / "lib" / "settings.sh").read_text()


def table(name: str) -> dict[str, str]:
    """The entries of one associative array in settings.sh."""
    body = re.search(rf"declare -rA {name}=\((.*?)\n\)", SETTINGS, re.DOTALL)
    assert body
    return dict(re.findall(r"^\s*\[(\w+)\]=(\S+)$", body[1], re.MULTILINE))


def test_shellcheck_has_no_finding() -> None:
    assert len(SHELL) > 10
    shellcheck = Path(sys.executable).with_name("shellcheck")
    optional = "--enable=quote-safe-variables,require-double-brackets,deprecate-which,avoid-nullary-conditions"
    done = completed([shellcheck, "-x", optional, *SHELL], cwd=FOLDER)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


def test_every_key_is_read() -> None:
    keys = set(table("SETTING_KINDS"))
    assert len(keys) > 20
    code = "\n".join(file.read_text() for file in SHELL if file.name != "settings.sh")
    unread = {key for key in keys if f"${{{key}" not in code and f"(({key}" not in code and f"{key} ==" not in code}
    assert unread == set()
    used = set(re.findall(r"\bTRN_[A-Z_]+", code)) - {"TRN_BOOTSTRAP_DIR", "TRN_ENTRY_RETRY_DELAY"}
    assert used <= keys


def test_the_vendors_addresses_are_those_of_the_catalogue() -> None:
    catalog = pytest.importorskip("trainium_cdk.description.catalog.lookup")
    text = (Path(catalog.__file__).parent / "data" / "neuron.yaml").read_text()
    block = text.split("\nrepositories:\n")[1]
    listed = dict(re.findall(r"^  (\w+): (\S+)$", block, re.MULTILINE))
    defaults = table("SETTING_DEFAULTS")
    keys = {
        "apt": "NEURON_APT",
        "yum": "NEURON_YUM",
        "pip": "NEURON_PIP",
        "key": "NEURON_KEY",
        "efa": "EFA",
        "agent": "AGENT",
    }
    assert listed == {name: defaults[f"TRN_{key}_URL"] for name, key in keys.items()}


def test_the_scripts_are_found_in_a_package_or_reported_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "trainium_cdk" / "node"
    (package / "bootstrap").mkdir(parents=True)
    monkeypatch.setattr(scripts, "__file__", str(package / "scripts.py"))
    with pytest.raises(FileNotFoundError, match=r"Reinstall trainium-cdk"):
        scripts.scripts_dir()
    for name in (scripts.ENTRY, scripts.CONFIGURE):
        (package / "bootstrap" / name).write_text("")
    assert scripts.scripts_dir() == package / "bootstrap"


RUN = """set -Eeuo pipefail
source {folder}/lib/log.sh
system_log() {{ :; }}
TRN_LOG={place}/log/x TRN_STATE_DIR={place}/state TRN_NODE_ROLE=compute TRN_NEURON_SDK= TRN_ON_FAILURE={otherwise}
{before}
log_open
begin_run
{then}
finish_run
"""
FULL = "df() { printf 'Avail Mounted\\n0 /full\\n900000 /\\n'; }"
ROOM = FULL.replace("0 /full", "900000 /full")
DIES = "step_x() { die 'no mirror.' 'Check its route'; }; run_step x"
NO_SPACE = "No space is left on /full: free some there, or give the node a larger root volume."
NO_WRITES = "trap '' XFSZ; ulimit -f 0"
STEP_FULL = f'rm "${{WORK}}/steps"; mkdir "${{WORK}}/steps"; step_x() {{ {NO_WRITES}; false; }}; run_step x'
LOG_LINE = """printf '%s trn-bootstrap[%s] %s\\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "${TRN_NODE_ROLE:-?}" "$*\""""


@pytest.mark.parametrize(
    ("before", "then", "said"),
    [
        (FULL, STEP_FULL, f"step 'x' failed on compute node NODE: the step ended with status 1. {NO_SPACE}\n"),
        (f"{FULL}; TMPDIR=/none", "", f"command 'WORK=\"$(mktemp -d \"${{TMPDIR:-/tmp}}/trn-bootstrap.XXXXXX\")\"' failed with status 1 on compute node NODE. {NO_SPACE} "),
        (FULL, f"{NO_WRITES}; step_x() {{ :; }}; run_step x", f"command '{LOG_LINE}' failed with status 1 on compute node NODE. {NO_SPACE} "),
        (ROOM, "printf x >/dev/full", "command 'printf x > /dev/full' failed with status 1 on compute node NODE. Full log: "),
        (ROOM, DIES, "step 'x' failed on compute node NODE: no mirror. Check its route\n"),
        (FULL, DIES, f"step 'x' failed on compute node NODE: no mirror. {NO_SPACE}\n"),
    ],
)  # fmt: skip
def test_no_run_ends_without_a_reason(before: str, then: str, said: str, tmp_path: Path) -> None:
    """On both outputs; also where nothing can be written any more."""
    done = completed(
        ["bash", "-c", RUN.format(folder=FOLDER, place=tmp_path, otherwise="fail", before=before, then=then)]
    )
    assert done.returncode == 1
    for out in (done.stdout, done.stderr):
        assert out.replace(os.uname().nodename, "NODE").count(f"trn-bootstrap: {said}") == 1


@pytest.mark.parametrize(("then", "failed"), [("step_x() { :; }; run_step x", False), ("printf x >/dev/full", True)])
def test_an_update_goes_on_and_a_run_that_ends_well_reports_nothing(then: str, failed: bool, tmp_path: Path) -> None:
    done = completed(
        ["bash", "-c", RUN.format(folder=FOLDER, place=tmp_path, otherwise="report", before=FULL, then=then)]
    )
    assert done.returncode == 0
    assert ("the cluster's update continues without it" in done.stderr) == failed
    assert bool(done.stderr) == failed


BAD_SETTINGS = {
    "TRN_NEURON_TOOL='2.1'": "node.env line 1: unknown key 'TRN_NEURON_TOOL'",
    "TRN_NEURON_TOOLS='latest'": "TRN_NEURON_TOOLS='latest' is not a version such as 2.31.13.0",
    "TRN_NEURON_TOOLS='2.1;reboot'": "TRN_NEURON_TOOLS='2.1;reboot' is not a version",
    "TRN_EFA_EXPECTED='eight'": "TRN_EFA_EXPECTED='eight' is not a whole number",
    "TRN_MOUNTS='fsx'": "TRN_MOUNTS='fsx' is not absolute paths",
    "TRN_PIP_EXTRA='--index-url=http://evil'": "is not pip requirements",
    "TRN_PIP_LINES='x @ https://h/x.whl|--index-url=http://evil'": "is not pip requirements, or --extra-index-url=URL",
    "TRN_PIP_LINES='x @ https://h/$(touch /pwned)'": "is not pip requirements, or --extra-index-url=URL",
    "TRN_USER='root;id'": "is not a user name",
    "TRN_NODE_ROLE='worker'": "is not head, compute, cpu, login, standalone or image",
    "TRN_NEURON_KEY_FINGERPRINT='00fa'": "is not 40 upper-case hexadecimal digits",
    "TRN_PYTHON='python2.7'": "is not an interpreter such as python3.12",
    "TRN_VENV_SHARED='maybe'": "is not yes or no",
    "TRN_NEURON_APT_URL='ftp://x'": "is not an https, http or file URL",
    "touch /pwned": "node.env line 1: expected KEY='value', got: touch /pwned",
    "TRN_SDK=$(touch /pwned)": "expected KEY='value'",
    "TRN_VENV='a'; touch /pwned": "expected KEY='value'",
}


def test_bad_settings_are_refused_before_anything_happens(new_node: NewNode) -> None:
    node = new_node()
    for text, message in BAD_SETTINGS.items():
        node.write("/opt/trn/node.env", text + "\n")
        done = node.configure("TRN_NODE_ROLE=login") if "ROLE" not in text else node.configure()
        assert done.code == 1, text
        assert message in done.err, text
        assert len(done.err.splitlines()) == 1
    node.settings()
    for argument, message in {
        "TRN_EFA_EXPECTED": "argument 'TRN_EFA_EXPECTED' is not KEY=VALUE",
        "PATH=/tmp": "argument: unknown key 'PATH'",
        "a[$(touch /pwned)]=1": "argument: unknown key",
        "TRN_EFA_EXPECTED=-1": "argument: TRN_EFA_EXPECTED='-1' is not a whole number",
    }.items():
        done = node.configure(argument)
        assert done.code == 1, argument
        assert message in done.err
    node.path("/opt/trn/node.env").unlink()
    assert "node.env is missing" in node.configure().err
    node.settings()
    node.become("Toaster")
    assert "cfn_node_type='Toaster' is not HeadNode, ComputeFleet or LoginNode" in node.configure().err
    assert not node.path("/pwned").exists()
    assert not node.path("/var/lib/trn-bootstrap").exists()


LINKED_TOGETHER = """
set -Eeuo pipefail
source lib/framework.sh
TRN_USER=ubuntu
changed() { :; }
as_user() { "$@"; }
chown() { until [[ $(ls "${started}" | wc -l) == 16 ]]; do sleep 0.01; done; }
for node in {1..16}; do
  (touch "${started}/${node}"; framework_link "${link}" "${link}-new") &
done
status=0
for job in $(jobs -p); do wait "${job}" || status=1; done
exit "${status}"
"""


def test_nodes_with_equal_process_ids_move_the_link_together(tmp_path: Path) -> None:
    """On a shared file system, after a rollback. Subshells have the process id of their shell in `$$`."""
    for folder in ("started", "shared", "shared/venv-old", "shared/venv-new"):
        (tmp_path / folder).mkdir()
    link = tmp_path / "shared/venv"
    link.symlink_to("venv-old")
    done = completed(
        ["bash", "-c", LINKED_TOGETHER],
        cwd=FOLDER,
        env={**os.environ, "started": str(tmp_path / "started"), "link": str(link)},
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert link.readlink() == Path("venv-new")
    assert sorted(p.name for p in link.parent.iterdir()) == ["venv", "venv-new", "venv-old"]
    assert list((link.parent / "venv-new").iterdir()) == []


def test_a_node_mounts_its_file_systems_itself(new_node: NewNode) -> None:
    """On AWS PCS. The `mount` of the test mounts memory, and says what it was asked for; fstab is the system's."""
    node = new_node(
        TRN_MOUNTS="/efs /fsx",
        TRN_NODE_ROLE="head",
        TRN_USER="ubuntu",
        TRN_JOBS_USER="trn-jobs:1999",
        TRN_SLURM_BIN="/opt/aws/pcs/scheduler/slurm-25.11/bin",
    )
    fake = '#!/bin/bash\ngrep -q "^[^ ]* $1 " /etc/fstab && echo "$1" >>/root/mounted && /bin/mount -t tmpfs trn "$1"\n'
    node.write("/usr/local/sbin/mount", fake, 0o755)
    sources = "TRN_MOUNT_SOURCES=efs:fs-0123456789abcdef0:/efs fsx:fs-1.fsx.us-east-1.amazonaws.com:abcdefgh:/fsx"
    for _ in range(2):  # again changes nothing
        done = node.configure(sources)
        assert done.code == 0, done.err
    assert node.read("/root/mounted").split() == ["/efs", "/fsx"]
    assert node.run("stat", "-c", "%U", "/efs/trn").out == "trn-jobs\n"
    lines = [line for line in node.read("/etc/fstab").splitlines() if "fs-" in line]
    assert lines == [
        "fs-0123456789abcdef0:/ /efs efs _netdev,noresvport,tls,iam 0 0",
        "fs-1.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh /fsx lustre _netdev,relatime,flock 0 0",
    ]
    assert "slurm-25.11/bin" in node.run("bash", "-lc", "echo $PATH").out
    bad = node.configure("TRN_MOUNT_SOURCES=efs:fs-0123456789abcdef0:efs")
    assert "is not efs:FILE-SYSTEM-ID:PATH or fsx:DNS-NAME:MOUNT-NAME:PATH" in bad.err
