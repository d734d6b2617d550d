"""`trn use`: the environment file that commands use where none is given, and the team or user of the jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.client.cli.output import echo, log, write_file
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.description.engines import EKS, InUse, in_use, place
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.description.settings import Environment


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

    It names stack and region. --environment and TRN_ENV come before it. Each command names what it uses. A team or a user is remembered until
    the next `trn use FILE`, for commands that use this file.
    """
    if none and (file is not None or team or user):
        raise typer.BadParameter("give a file, or --none")
    if file is None and (team or user):
        raise typer.BadParameter("give the environment file too: a team or user is remembered with it")
    if none:
        place().unlink(missing_ok=True)
        log("no environment file is in use")
        return
    if file is None:
        found = in_use()
        if found is None:
            raise TrnError("no environment file is in use. Use one: trn use environment.yaml")
        echo(str(found.file))
        if found.team or found.user:
            log(str(found))
        return
    from trainium_cdk.description import settings

    env = settings.load(file)
    known = [(name, value) for name, value in (("team", team), ("user", user)) if value]
    for name, value in known:
        if not any(_has(env, engine, name, value) for engine in env.engines):
            where = "eks.queues" if name == "team" else "users of pcluster or pcs"
            raise TrnError(f"{file} describes no {name} {value[:80]!r}. Correct it, or add it to the file ({where})")
    remember(InUse(file.resolve(), team, user), env.region)


def remember(chosen: InUse, region: str) -> None:
    """Store what is in use from now on, and print it with what was in use before."""
    before = in_use()
    place().parent.mkdir(parents=True, exist_ok=True)
    write_file(place(), chosen.text, 0o600)
    earlier = f". In use before: {before.file}" if before and before.file != chosen.file else ""
    log(
        f"trn and cdk now use {chosen} ({region}). For an app that is not in this file's folder: "
        f"export TRN_ENV={printed(chosen.file)}{earlier}"
    )


def kept(in_use: InUse, name: str, env: Environment, engine: str | None) -> str:
    """The remembered `team` or `user`, where the stack of this engine has it; else empty."""
    value: str = getattr(in_use, name)
    return value if value and engine in env.engines and _has(env, engine, name, value) else ""


def _has(env: Environment, engine: str, name: str, value: str) -> bool:
    if name == "team":
        return engine == EKS.name and value in {team.namespace for team in env.eks.queues}
    section = env.slurm_sections.get(engine)
    return section is not None and (
        section.several_users == "directory" or value in {user.name for user in section.users}
    )
