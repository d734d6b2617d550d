"""What modules compile from text while they load: once, and after that from a copy."""

import marshal
import os
import sys
from pathlib import Path

import pytest

from tests.support import completed

PROGRAM = """
import builtins
from trainium_cdk import _compiled
_compiled.__file__ = "_compiled.py"
_compiled.compile_sources_once()
made, compile = 0, builtins.compile
def counted(*args, **named):
    global made
    made += 1
    return compile(*args, **named)
builtins.compile = counted

import dataclasses, typing
@dataclasses.dataclass(frozen=True, order=True)
class Point:
    x: int
    y: "int" = 2
class Pair(typing.NamedTuple):
    a: "list[int]"
    b: str = "b"
assert Point(1) == Point(1, 2) < Point(2) and repr(Point(1)) == "Point(x=1, y=2)" and len({Point(1), Point(1)}) == 1
assert Pair([1])._replace(b="c") == ([1], "c")
assert typing.get_type_hints(Pair) == {"a": list[int], "b": str}
try:
    typing.ForwardRef("not an annotation")
except SyntaxError as e:
    print(e)
print(made)
"""


def run(folder: Path) -> list[str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return completed([sys.executable, "-c", PROGRAM], cwd=folder, env=env, check=True).stdout.splitlines()


def test_sources_are_compiled_once(tmp_path: Path) -> None:
    """Classes are the same with and without the copy; text that is no Python is refused each time, as without it."""
    error, made = run(tmp_path)
    assert error.startswith("Forward reference must be an expression")
    assert (
        int(made) >= 4
    )  # the dataclass, the named tuple, an annotation, and the text that is none; before Python 3.13 each method, too
    assert run(tmp_path) == [error, "1"]


@pytest.mark.parametrize("damaged", [b"", b"x", marshal.dumps([1]), marshal.dumps({"a": 1})[:-1]], ids=repr)
def test_a_damaged_copy_is_replaced(damaged: bytes, tmp_path: Path) -> None:
    first = run(tmp_path)
    [copy] = (tmp_path / "__pycache__").iterdir()
    whole = marshal.loads(copy.read_bytes())  # noqa: S302  just written
    copy.write_bytes(damaged)
    assert run(tmp_path) == first
    assert marshal.loads(copy.read_bytes()).keys() == whole.keys()  # noqa: S302
