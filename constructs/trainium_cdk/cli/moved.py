"""`trn init --from`: the copy of an environment file for another region."""

from __future__ import annotations

from pathlib import Path

from trainium_cdk import engines
from trainium_cdk.cli.named import unknown
from trainium_cdk.cli.output import say, write_file
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.quote import printed


def copy(
    source: Path, file: Path, region: str, zone: str | None, name: str | None, replace: list[str], *, force: bool
) -> None:
    """Write the copy, and print what is left out of it, and what is wrong with it.

    Raises:
        TrnError: an argument does not fit, or the file exists and `force` is not given.
    """
    from trainium_cdk import checks, settings
    from trainium_cdk.problems import errors
    from trainium_cdk.settings.moved import move

    first = settings.load(source)
    known = first.catalog
    offered = sorted({*known.zone_regions.values()})
    if region not in offered:
        raise TrnError(unknown("the catalogue has no region", region, offered))
    if region == first.region:
        raise TrnError(f"{source} is in {region} already. Give another region")
    if zone and known.region_of(zone) != region:
        raise TrnError(
            f"{zone[:80]!r} is no zone of {region}. Give a zone id of it, as `trn capacity --regions {region}` prints them"
        )
    if bad := next((pair for pair in replace if "=" not in pair.strip("=")), None):
        raise TrnError(f"--replace {bad[:80]!r} is not OLD=NEW")
    may_be_written(file, force=force)
    pairs = dict(pair.split("=", 1) for pair in replace)
    moved = move(source.read_text("utf-8"), str(source), region, zone=zone, name=name, replace=pairs)
    write_file(file, moved.text, 0o644)
    for line in moved.left_out:
        say(f"left out: {line}")
    for line in moved.notes:
        say(f"check: {line}")
    made = settings.load(file)
    for problem in (p for engine in made.engines for p in errors(checks.check(made, engine))):
        say(made.source.describe(problem))
    say(
        f"{file}: {source} in {region}. Next: {printed('trn', 'preflight', engines.get(made.engines[0]).stack, '--env', file)}"
    )


def may_be_written(file: Path, *, force: bool) -> None:
    """Raises TrnError: the file exists, and is not to be overwritten."""
    try:
        exists = file.exists()
    except OSError as e:  # the name is too long
        raise TrnError(f"cannot write {file}: {e.strerror}. Give another file") from None
    if exists and not force:
        raise TrnError(f"{file} exists already. Give another file, or --force to overwrite it")
