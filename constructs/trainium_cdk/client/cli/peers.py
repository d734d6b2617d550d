"""Words of other programs on the command line, and what to type here. They are data: catalog/data/words.yaml."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping


def engine(given: str) -> str:
    """The name of an engine, by that name or another one, such as `kubernetes`; any other word as it is."""
    return next((name for name, words in _words("engines").items() if given.lower() in words), given)


def command(given: str) -> str:
    """What to type for the command of another program; empty for any other word."""
    plain = given.replace("-", "_")
    return next((ours for ours, words in _words("commands").items() if plain in words), "")


def option(given: str, known: Collection[str], *, script: bool) -> str:
    """What to write for an option that a command does not have, as the end of a sentence; empty if that is not known.

    Args:
        known: the options that it has.
        script: whether the option may be one of a script.
    """
    import difflib

    word = given.lstrip("-").replace("_", "-")
    found = [f"--{word}"] if f"--{word}" in known else [*_of(word, "options", known)]
    names = {one.lstrip("-"): one for one in known}
    found = found or [names[one] for one in difflib.get_close_matches(word, names, n=2, cutoff=0.8)]
    advice = [f"write {' or '.join(found)}"] if found else [*_of(word, "option_advice")][:1]
    own = [f"if it belongs to your script, write it after --: trn submit SCRIPT -- {given}"] if script else []
    return "".join(f"; {one}" for one in (*advice, *own))


def _of(word: str, table: str, known: Collection[str] | None = None) -> Iterator[str]:
    return (
        ours for ours, words in _words(table).items() if word in words and (known is None or ours.split()[0] in known)
    )


def _words(table: str) -> Mapping[str, list[str]]:
    from trainium_cdk.description.catalog.lookup import read  # slow, and seldom needed

    return dict(read("words")[table])
