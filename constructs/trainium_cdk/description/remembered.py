"""The environment file that `trn use` remembers on this machine. `trn` and the CDK app both read it here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class InUse:
    """Selection that `trn use` remembers.

    Attributes:
        file: the environment file, absolute.
        team, user: whose jobs commands submit and list; empty where nothing is remembered.
    """

    file: Path
    team: str = ""
    user: str = ""

    def __str__(self) -> str:
        return "".join((str(self.file), *(f", {name} {value}" for name, value in self._kept())))

    def _kept(self) -> Iterator[tuple[str, str]]:
        yield from ((name, value) for name in ("team", "user") if (value := getattr(self, name)))

    @property
    def text(self) -> str:
        """Stored form: the file, then a line for each of the others."""
        return "\n".join((str(self.file), *(f"{name}={value}" for name, value in self._kept()), ""))


def in_use() -> InUse | None:
    """Read the selection of the last `trn use`; None without one."""
    try:
        file, *rest = place().read_text("utf-8").strip().splitlines()
    except (OSError, ValueError):
        return None
    kept = dict(line.split("=", 1) for line in rest if line.startswith(("team=", "user=")))
    return InUse(Path(file), **kept)


def place() -> Path:
    """The file that holds it, in the user's configuration folder."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "trainium-cdk" / "environment"
