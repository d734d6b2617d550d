"""`trn use`: the environment file that commands use where none is given, and the team or user as whom."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli.output import answer, say, write_file
from trainium_cdk.engines import EKS
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.quote import printed

if TYPE_CHECKING:
    from trainium_cdk.settings import Environment


@dataclass(frozen=True)
class InUse:
    """What `trn use` remembers."""

    file: Path
    team: str = ""
    user: str = ""

    def __str__(self) -> str:
        return "".join((str(self.file), *(f", {name} {value}" for name, value in self._kept())))

    def _kept(self) -> Iterator[tuple[str, str]]:
        yield from ((name, value) for name in ("team", "user") if (value := getattr(self, name)))

    @property
    def text(self) -> str:
        """As it is stored: the file, then a line for each of the others."""
        return "\n".join((str(self.file), *(f"{name}={value}" for name, value in self._kept()), ""))


def use(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Environment file. Without one: print which is in use.")
    ] = None,
    team: Annotated[
        str, typer.Option(help="EKS: also remember this team (eks.queues). --team and TRN_TEAM come before it.")
    ] = "",
    user: Annotated[
        str,
        typer.Option(help="Slurm: also remember this user of the cluster. --user and TRN_CLUSTER_USER come before it."),
    ] = "",
    none: Annotated[bool, typer.Option("--none", help="Forget it: use no file any more.")] = False,
) -> None:
    """Remember an environment file for all later commands.

    It names stack and region. --env and TRN_ENV come before it. What is in use stands in the answer of each command. A team or a user is remembered until
    the next `trn use FILE`, for commands that use this file.
    """
    place = _place()
    if none and (file is not None or team or user):
        raise typer.BadParameter("give a file, or --none")
    if file is None and (team or user):
        raise typer.BadParameter("give the environment file too: a team or user is remembered with it")
    if none:
        place.unlink(missing_ok=True)
        say("no environment file is in use")
        return
    if file is None:
        found = in_use()
        if found is None:
            raise TrnError("no environment file is in use. Use one: trn use environment.yaml")
        answer(str(found.file))
        if found.team or found.user:
            say(str(found))
        return
    from trainium_cdk import settings

    env = settings.load(file)
    known = [(name, value) for name, value in (("team", team), ("user", user)) if value]
    for name, value in known:
        if not any(_has(env, engine, name, value) for engine in env.engines):
            where = "eks.queues" if name == "team" else "users or directory_service of pcluster, users of pcs"
            raise TrnError(f"{file} describes no {name} {value[:80]!r}. Correct it, or add it to the file ({where})")
    chosen = InUse(file.resolve(), team, user)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_file(place, chosen.text, 0o600)
    say(f"in use: {chosen}, in {env.region}. For cdk: export TRN_ENV={printed(chosen.file)}")


def in_use() -> InUse | None:
    """What the last `trn use` has chosen; None without one."""
    try:
        file, *rest = _place().read_text("utf-8").strip().splitlines()
    except (OSError, ValueError):
        return None
    kept = dict(line.split("=", 1) for line in rest if line.startswith(("team=", "user=")))
    return InUse(Path(file), **kept)


def kept(found: InUse, name: str, env: Environment, engine: str | None) -> str:
    """The remembered `team` or `user`, where the stack of this engine has it; else empty."""
    value: str = getattr(found, name)
    return value if value and engine in env.engines and _has(env, engine, name, value) else ""


def _has(env: Environment, engine: str, name: str, value: str) -> bool:
    if name == "team":
        return engine == EKS.name and value in {team.namespace for team in env.eks.queues}
    section = env.slurm_sections.get(engine)
    return section is not None and (
        section.several_users == "directory" or value in {user.name for user in section.users}
    )


def _place() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "trainium-cdk" / "environment"
