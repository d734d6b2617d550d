"""Slurm's accounting on this machine: MariaDB and slurmdbd, on 127.0.0.1, all files in the local Slurm's directory.

ParallelCluster connects its slurmdbd to a database of the user's, AWS PCS to one that AWS runs. Settings of MariaDB are smaller than a
server's, and it loses the last second in a crash; users, rights and tables are MariaDB's and Slurm's own.
"""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

from sandbox import paths, slurm_packages
from sandbox.slurm_packages import ACCOUNTING, which

DEBIAN_13 = "Debian 13's slurmdbd ends with that system's libmariadb3: use Debian 12 or Ubuntu, or no accounting"
_DATABASE = "slurm_acct_db"
_SMALL = (
    "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=off",
    "--innodb-lock-wait-timeout=900",
)  # fmt: skip


def unavailable() -> str | None:
    """Why this machine cannot run Slurm's accounting, or None."""
    missing = [name for name in ACCOUNTING if which(name) is None]
    return (
        f"not installed: {', '.join(missing)} (`{paths.SLURM}` downloads them with Slurm into .cache)"
        if missing
        else None
    )


def prepare(directory: Path, link: Path, user: str, ports: tuple[int, int]) -> None:
    """Create an empty database and the configuration of slurmdbd.

    Args:
        directory, link: the local Slurm's directory, and a short path to it.
        user: of the daemons.
        ports: of slurmdbd and MariaDB.

    Raises:
        RuntimeError: MariaDB cannot create its system tables; the message has its last words.
    """
    place, password = directory / "database", secrets.token_urlsafe(24)
    place.mkdir()
    scripts = _share() / "mysql_system_tables.sql", _share() / "mysql_system_tables_data.sql"
    text = "create database mysql;\nuse mysql;\n" + "".join(script.read_text() for script in scripts)
    made = subprocess.run(
        [*_mariadbd(directory, user), "--bootstrap"], input=text, capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise RuntimeError(f"MariaDB cannot create its tables: {' | '.join(made.stderr.splitlines()[-3:])}")
    _private(
        directory / "etc/database.sql",
        f"CREATE USER slurm@localhost IDENTIFIED BY '{password}';\nGRANT ALL ON {_DATABASE}.* TO slurm@localhost;\n",
    )
    unpacked = slurm_packages.unpacked()
    lines = [
        "AuthType=auth/munge", f"AuthInfo=socket={link}/munge/sock", "DbdHost=localhost", "DbdAddr=127.0.0.1", f"DbdPort={ports[0]}",
        f"SlurmUser={user}", f"LogFile={link}/log/slurmdbd.log", f"PidFile={link}/run/slurmdbd.pid",
        *([f"PluginDir={unpacked.plugins}"] if unpacked else []), "StorageType=accounting_storage/mysql", "StorageHost=127.0.0.1",
        f"StoragePort={ports[1]}", "StorageUser=slurm", f"StoragePass={password}", f"StorageLoc={_DATABASE}", "CommitDelay=1",
    ]  # fmt: skip
    _private(directory / "etc/slurmdbd.conf", "\n".join(lines) + "\n")


def mariadbd(directory: Path, link: Path, user: str, port: int) -> list[str]:
    """The command of the database."""
    own = {
        "socket": f"{link}/run/mariadb",
        "pid-file": f"{link}/run/mariadb.pid",
        "init-file": f"{link}/etc/database.sql",
    }
    where = [f"--{name}={value}" for name, value in own.items()]
    return [*_mariadbd(directory, user), "--bind-address=127.0.0.1", f"--port={port}", *where]


def _mariadbd(directory: Path, user: str) -> list[str]:
    found = which("mariadbd")
    if found is None:
        raise RuntimeError(str(unavailable()))
    options = [f"--datadir={directory / 'database'}", f"--lc-messages-dir={_share()}", f"--user={user}"]
    return [found, "--no-defaults", *options, *_SMALL]


def _share() -> Path:
    unpacked = slurm_packages.unpacked()
    return (unpacked.folder / "root" if unpacked else Path("/")) / "usr/share/mysql"


def _private(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text)
