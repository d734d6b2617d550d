"""The bootstrap where a job has replaced every file of the jobs' user: nothing of it runs as root, and root writes through none of its links."""

from __future__ import annotations

import subprocess

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.node import Node
from tests.bootstrap.test_ubuntu import FRAMEWORK
from tests.bootstrap.test_users import BARE
from tests.support import swept
from trainium_cdk.client.jobs.slurm import transport

ROLES = ("head", "compute", "cpu", "login", "standalone", "image")
SETTINGS = {**FRAMEWORK, **BARE, "TRN_VENV": "venv", "TRN_JOBS_USER": "trn-jobs:1999", "TRN_USERS": "alice:2001"}
PLANTED = '#!/bin/sh\necho "$0" >> "/planted/$(/usr/bin/id -u)"\n'
"""Tells as whom it runs. It succeeds, as what it replaces would."""
IMPORTED = "import os\nopen(f'/planted/{os.geteuid()}', 'a').write(__file__ + '\\n')\n"
PROGRAMS = ("python", "python3", "pip", "head", "id", "tee", "stat", "mkdir", "ln", "mv", "install", "env", "timeout", "getent", "git", "curl")  # fmt: skip
DOTFILES = (".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_logout", ".zshenv", ".bash_aliases")
VARIABLES = {
    "HOME": "/home/ubuntu",
    "PATH": "/home/ubuntu/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": "/home/ubuntu/lib",
    "PYTHONSTARTUP": "/home/ubuntu/lib/usercustomize.py",
    "PYTHONUSERBASE": "/home/ubuntu/.local",
    "PYTHONHOME": "/home/ubuntu",
    "TMPDIR": "/home/ubuntu/tmp",
    "XDG_CONFIG_HOME": "/home/ubuntu/.config",
    "PIP_CONFIG_FILE": "/home/ubuntu/pip.conf",
    "GNUPGHOME": "/home/ubuntu/.gnupg",
    "APT_CONFIG": "/home/ubuntu/apt.conf",
    "CURL_HOME": "/home/ubuntu",
    "BASH_FUNC_log%%": "() { /home/ubuntu/bin/id; }",
}


@pytest.mark.parametrize("shared", ["yes", "no"])
@pytest.mark.sweep
def test_root_runs_nothing_that_a_job_can_write(new_node: NewNode, shared: str) -> None:
    node = new_node(**SETTINGS, TRN_VENV_SHARED=shared)
    assert node.configure("TRN_NODE_ROLE=head").code == 0
    assert node.run("mkdir", "-m", "1777", "/planted").code == 0
    plant(node)
    for role in ROLES:
        node.configure(f"TRN_NODE_ROLE={role}")
        node.run("sh", "-c", f"cd /home/ubuntu && exec /opt/trn/configure-node.sh TRN_NODE_ROLE={role}", env=VARIABLES)
        status = node.status()
        assert (status["role"], status["result"]) == (role, "ok"), status["message"]
    ran = {file.name: set(file.read_text().split()) for file in node.path("/planted").iterdir()}
    assert ran.get("0", set()) == set()
    assert any(name.endswith("/bin/python") for name in ran["1000"]), "what was planted was not tried"
    # the same, where the environment is not complete
    for file in ("venv/.trn-requirements", "venv/bin/python"):
        node.path(f"/home/ubuntu/{file}").unlink()
    for role in ("head", "standalone"):
        node.configure(f"TRN_NODE_ROLE={role}")
    assert not node.path("/planted/0").exists()


def plant(node: Node) -> None:
    """Replace what the jobs' user owns, and add what programs of root might read."""
    home = "/home/ubuntu"
    venv = node.path(f"{home}/venv").readlink()
    for program in (node.path(f"{home}/{venv}/bin")).iterdir():
        program.unlink()
    names = [f"{place}/{name}" for name in PROGRAMS for place in (f"{venv}/bin", "bin", ".local/bin")]
    for name in [*names, *DOTFILES]:
        node.write(f"{home}/{name}", PLANTED, 0o755)
    for packages in (f"{venv}/lib", ".local/lib"):
        place = f"{home}/{packages}/python{node.python}/site-packages"
        node.write(f"{place}/planted.pth", f"import os; os.system('{home}/bin/id')\n")
        node.write(f"{place}/usercustomize.py", IMPORTED)
    for module in ("lib/usercustomize", "lib/sitecustomize", "lib/json", "json", "venv/json", "zipfile", "fcntl"):
        node.write(f"{home}/{module}.py", IMPORTED)
    node.write(
        f"{home}/apt.conf", f'APT::Update::Pre-Invoke {{"{home}/bin/id"}}; Dpkg::Pre-Invoke {{"{home}/bin/id"}};\n'
    )
    node.write(f"{home}/.curlrc", "output = /planted/0\n")
    node.write(f"{home}/tmp/here", "")
    node.write(f"{home}/.config/pip/pip.conf", "[global]\nindex-url = http://127.0.0.1:9\n")
    assert node.run("chown", "-hR", "ubuntu:", home).code == 0


@pytest.mark.parametrize(
    ("link", "settings"),
    [
        ("/efs/trn", {"TRN_VENV": ""}),
        *(
            pytest.param(link, {"TRN_VENV": venv}, marks=pytest.mark.sweep)
            for link, venv in (
                ("/efs/trn-users", ""),
                ("/efs/trn", "/efs/trn/venv"),
                ("/home/ubuntu/below", "below/venv"),
                ("/efs/below", "/efs/below/venv"),
            )
        ),
    ],
)
@pytest.mark.parametrize("there", swept(["/root/there", "/root/new"], "/root/new"))
def test_root_writes_through_no_link_of_a_user(
    new_node: NewNode, link: str, settings: dict[str, str], there: str
) -> None:
    """ParallelCluster's shared file systems have mode 1777."""
    node = new_node(**SETTINGS | settings, TRN_MOUNTS="/efs")
    node.path("/efs").mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "mode=1777", "t", f"{node.inner}/efs"]
    subprocess.run(["nsenter", "-t", str(node.pid), "-m", *mounted], check=True)
    assert node.run("mkdir", "/root/there").code == 0
    assert node.run("runuser", "-u", "ubuntu", "--", "ln", "-sT", there, link).code == 0
    found = node.run("find", "/root", "-printf", "%p %m %u\n").out
    done = node.configure("TRN_NODE_ROLE=head")
    assert node.run("find", "/root", "-printf", "%p %m %u\n").out == found
    assert done.code == 0 or f"{link} is not a folder of" in done.err, done.err


@pytest.mark.parametrize("shared", ["1777", "755"])
def test_a_job_cannot_put_its_own_virtual_environment_in_place(new_node: NewNode, shared: str) -> None:
    """The image's user, an administrator, would run it on the head node. The name of the next one can be guessed."""
    node = new_node(**SETTINGS | {"TRN_VENV": "/efs/venv"}, TRN_MOUNTS="/efs")
    node.path("/efs").mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", f"mode={shared}", "t", f"{node.inner}/efs"]
    subprocess.run(["nsenter", "-t", str(node.pid), "-m", *mounted], check=True)
    assert node.configure("TRN_NODE_ROLE=head").code == 0, node.status()["message"]
    real = node.path("/efs/venv").readlink()
    marker = node.read(f"/efs/{real}/.trn-requirements")
    assert node.run("mkdir", "-m", "1777", "/planted").code == 0
    as_job = ("runuser", "-u", "trn-jobs", "--")
    for change in (f"touch /efs/{real}/bin/python", f"mv /efs/{real} /efs/mine", "ln -sfT /tmp /efs/venv"):
        assert node.run(*as_job, *change.split()).code == 1, change
    if shared == "755":
        return
    # the next environment: the same, but that the job was first
    assert node.run("mv", f"/efs/{real}", "/efs/aside").code == 0
    for place in (f"/efs/{real}", f"/home/trn-jobs/{real}"):
        node.write(f"{place}/.trn-requirements", marker)
        node.write(f"{place}/bin/python", PLANTED, 0o755)
        assert node.run("chown", "-hR", "trn-jobs:", place).code == 0
    for trap in (
        "true",
        f"rm -rf /efs/{real}",
        f"ln -sT /home/trn-jobs/{real} /efs/{real}",
        f"ln -sfT /efs/aside /efs/{real}",
    ):
        assert node.run(*as_job, *trap.split()).code == 0
        if trap.startswith("rm"):
            continue
        for role in ("head", "standalone", "compute"):
            done = node.configure(f"TRN_NODE_ROLE={role}", "TRN_VENV_WAIT=1")
            assert (done.code, node.status()["failed_step"]) == (1, "framework")
        assert not list(node.path("/planted").iterdir())


MODULES = """export MODULEPATH=/opt/modules
module() { echo "$1 of $MODULEPATH"; }
export -f module
"""


def test_a_script_starts_as_a_user_with_the_systems_variables_and_none_of_the_users_files(new_node: NewNode) -> None:
    """As `trn` starts it, by Run Command."""
    node = new_node(**BARE, TRN_SLURM_BIN="/opt/slurm-1/bin", TRN_OS_PACKAGES="")
    node.write("/etc/profile.d/modules.sh", MODULES)
    assert node.run("mkdir", "-m", "1777", "/planted").code == 0
    for name in (*DOTFILES, "bin/id", ".local/bin/id"):
        node.write(f"/home/ubuntu/{name}", PLANTED, 0o755)
    assert node.run("chown", "-hR", "ubuntu:", "/home/ubuntu").code == 0
    assert node.configure("TRN_NODE_ROLE=head").code == 0
    assert not list(node.path("/planted").iterdir())
    assert node.run("runuser", "-l", "ubuntu", "-c", "true").code == 0
    assert node.path("/planted/1000").exists(), "a login shell runs what was planted"
    node.path("/planted/1000").unlink()

    command = 'module load; type -p sbatch id; pwd; echo "$HOME $USER $TRN_OWN" "$(id -un)"; command -v absent'
    line = transport.as_user("ubuntu", command, "runuser")
    node.write("/opt/slurm-1/bin/sbatch", "#!/bin/sh\n", 0o755)
    for env in ({}, {"TRN_OWN": "of root", "HOME": "/home/ubuntu"}):
        done = node.run("sh", "-c", line, env=env)
        said = [
            "load of /opt/modules",
            "/opt/slurm-1/bin/sbatch",
            "/usr/bin/id",
            "/home/ubuntu",
            "/home/ubuntu ubuntu  ubuntu",
        ]
        assert (done.out.splitlines(), done.code, done.err) == (said, 1, "")
    assert not list(node.path("/planted").iterdir())
    # a node that has no such file yet
    node.path("/etc/trn-environment").unlink()
    assert node.run("sh", "-c", transport.as_user("ubuntu", "echo $PATH", "runuser")).out == f"{transport.PATH}\n"
