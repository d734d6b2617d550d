"""The members of an array of jobs."""

from __future__ import annotations


def members(array: str) -> list[str]:
    """The indices, in their order.

    >>> members("0-3%2"), members("1,3,10-20:5")
    (['0', '1', '2', '3'], ['1', '3', '10', '15', '20'])
    """
    found: dict[int, None] = {}
    for part in array.partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        found.update(dict.fromkeys(range(int(first), int(last or first) + 1, int(step or 1))))
    return [str(one) for one in found]
