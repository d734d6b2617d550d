"""Source trees: git repositories at one commit, in the folder `src` that all jobs share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .making import Failed, Here, once, remove, say
from .needs import absent_modules


def source(here: Here, name: str, url: str, commit: str, variable: str = "", unless: Sequence[str] = ()) -> None:
    """Fetch a repository at a commit.

    Args:
        variable: names what is fetched in the commit's place: in a sandbox, whose repositories have other commits.
        unless: not needed where Python finds all of these modules.
    """
    if unless and not absent_modules(here, unless):
        return
    place = here.trn / "src" / f"{name}-{commit}"
    ref = here.variables.get(variable) or commit
    once(here, f"src-{name}-{commit}".replace("/", "-"), place, partial(_clone, here, url, ref, place))


def _clone(here: Here, url: str, ref: str, place: Path) -> None:
    say(f"fetching {url} at {ref}")
    part = place.with_name(f"{place.name}.part")
    remove(place)
    remove(part)
    git = ["git", "-C", str(part)]
    for words in (
        ["git", "init", "-q", str(part)],
        [*git, "fetch", "-q", "--depth", "1", "--", url, ref],
        [*git, "checkout", "-q", "--detach", "FETCH_HEAD"],
    ):
        if here.run(words):
            raise Failed(f"{url} could not be fetched at {ref}: see what git says above. Submit the job again")
    part.rename(place)
