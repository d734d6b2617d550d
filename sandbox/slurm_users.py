"""Accounts of a local Slurm with several users: real ones, without a change of this machine.

Its daemons, and the commands on its head node, run in their own mount namespaces, in which /etc/passwd and /etc/group have these
accounts as well. That takes root. `ubuntu` is the image's user there: another name of root, as which the daemons run. `trn-jobs` has the
jobs of no user, as on a real node.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sandbox.head_node import VENV, quoted
from sandbox.processes import free_ports
from sandbox.slurm_layout import SlurmFailed
from sandbox.slurm_packages import SYSTEM_PATH

JOB_ROLE = "arn:aws:iam::000000000000:role/Jobs"
"""What jobs have, where the local AWS has this role."""
IMAGE_USER = "ubuntu"
_INSIDE = 'mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/group" /etc/group && shift && exec "$@"'


def unavailable() -> str | None:
    """Why this machine cannot run it, or None."""
    if os.getuid() != 0 or not Path("/usr/sbin/runuser").exists() or shutil.which("unshare") is None:
        return "root and the programs runuser and unshare are needed"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        return "this machine allows no new mount namespaces (a container without CAP_SYS_ADMIN?)"
    return None


def prepare(directory: Path, users: Mapping[str, int]) -> dict[str, Any]:
    """Write the accounts; returns them, and `inside`, the words before a command that then has them: none without users.

    Raises:
        SlurmFailed: this machine cannot run it.
    """
    if not users:
        return {"users": {}, "inside": []}
    if (reason := unavailable()) is not None:
        raise SlurmFailed(f"a local Slurm cannot have several users here: {reason}")
    from trainium_cdk.description.node.env import JOBS_UID
    from trainium_cdk.description.outputs.slurm import JOBS_USER

    users = {JOBS_USER: JOBS_UID, **users}
    accounts = {IMAGE_USER: (0, directory / "home"), **{n: (uid, directory / "homes" / n) for n, uid in users.items()}}
    for name, line in (("passwd", "{0}:x:{1}:{1}::{2}:/bin/bash\n"), ("group", "{0}:x:{1}:\n")):
        added = "".join(line.format(user, uid, home) for user, (uid, home) in accounts.items())
        (directory / "etc" / name).write_text(Path(f"/etc/{name}").read_text().rstrip("\n") + "\n" + added)
    return {
        "users": users,
        "inside": ["unshare", "--mount", "sh", "-c", _INSIDE, "inside", str(directory / "etc")],
    }


def homes(directory: Path, env: dict[str, str], users: Mapping[str, int]) -> None:
    """Create what the nodes' bootstrap does where there are users of a directory, too: homes, folders on the first shared file system, and a
    way to the virtual environment. Adds their names to the head node's environment."""
    if not users:
        return
    from trainium_cdk.description.outputs.slurm import JOBS_USER

    env["TRN_SANDBOX_USERS"] = " ".join(users)
    (directory / "home").chmod(0o711)
    open_python(directory / "home" / VENV)
    for mount in (directory / "shared").iterdir():
        (mount / "trn").mkdir(exist_ok=True)
        os.chown(mount / "trn", users[JOBS_USER], users[JOBS_USER])
        (mount / "trn-users").mkdir(exist_ok=True)
        (mount / "trn-users").chmod(0o1777)
    kept = {k: v for k, v in env.items() if k not in ("HOME", "USER", "LOGNAME")}
    profile = "".join(f"export {name}={quoted(value)}\n" for name, value in kept.items())
    for name, uid in users.items():
        home = directory / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        (home / ".profile").write_text(profile)
        os.chown(home, uid, uid)
        home.chmod(0o700)
        if name == JOBS_USER and not (home / VENV).is_symlink():
            (home / VENV).symlink_to(directory / "home" / VENV)


def open_python(venv: Path) -> None:
    """Give a virtual environment the system's Python where others may not execute its own, which is in somebody's home."""
    python, others = venv / "bin/python3", ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*others, "test", "-x", python.resolve()], check=False).returncode == 0:
        return
    own = python.resolve().name
    program = "import sys; print('python%d.%d' % sys.version_info[:2])"
    version = subprocess.check_output(["/usr/bin/python3", "-c", program], text=True).strip()
    for name in (python.name, own):
        (venv / "bin" / name).unlink(missing_ok=True)
        (venv / "bin" / name).symlink_to("/usr/bin/python3")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    [modules] = (venv / "lib").iterdir()
    modules.rename(venv / "lib" / version)


def start_role_of_jobs(
    users: Mapping[str, int], directory: Path, environment: Mapping[str, str], start: Callable[..., None]
) -> dict[str, str]:
    """Start the service by which jobs of several users have a role, the node's own (`bootstrap/lib/credentials.py`). The variable by which jobs
    find what it writes.

    Args:
        start: takes its words, its name and its variables.
    """
    if not users:
        return {}
    from trainium_cdk.description.node.scripts import scripts_dir

    port, folder, file = free_ports(1)[0], directory / "role", directory / "job-environment"
    folder.mkdir(exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), SYSTEM_PATH])
    program = [sys.executable, "-I", str(scripts_dir() / "lib/credentials.py"), JOB_ROLE, str(folder), str(port)]
    keys = {name: value for name, value in environment.items() if name.startswith(("AWS_", "NO_PROXY"))}
    start(["env", f"PATH={path}", *program], "role", keys)
    given = {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{port}/",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{folder}/token",
    }
    file.write_text("".join(f"{name}={value}\0" for name, value in given.items()))
    return {"TRN_JOB_ENVIRONMENT": str(file)}
