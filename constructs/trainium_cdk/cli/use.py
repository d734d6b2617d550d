"""`trn use`: the environment file that commands use where none is given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trainium_cdk.cli.output import answer, say, write_file
from trainium_cdk.errors import TrnError


def use(
    file: Annotated[Path | None, typer.Argument(help="Environment file. Without one: print which is in use.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Use none any more.")] = False,
) -> None:
    """Remember an environment file for all later commands of yours: it names stack and region.

    --env and TRN_ENV come before it. What is in use stands in the answer of each command.
    """
    place = _place()
    if file is not None and none:
        raise typer.BadParameter("give a file, or --none")
    if none:
        place.unlink(missing_ok=True)
        say("no environment file is in use")
        return
    if file is None:
        found = in_use()
        if found is None:
            raise TrnError("no environment file is in use. Use one: trn use environment.yaml")
        answer(str(found))
        return
    from trainium_cdk import settings

    env = settings.load(file)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_file(place, f"{file.resolve()}\n", 0o600)
    say(f"in use: {file.resolve()}, in {env.region}. For cdk: export TRN_ENV={file.resolve()}")


def in_use() -> Path | None:
    """The file of the last `trn use`; None without one."""
    try:
        return Path(_place().read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return None


def _place() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "trainium-cdk" / "environment"
