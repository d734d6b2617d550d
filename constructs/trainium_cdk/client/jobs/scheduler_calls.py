"""Calls of a scheduler's own launchers in a shell script, found in its text. Pure: nothing is run, and no variable has a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import NamedTuple

_COMMANDS = ("srun", "mpirun", "mpiexec", "sbatch", "salloc")
_BLOCKS = {"if", "while", "until", "for", "select", "case", "{"}
_BEFORE = {"if", "while", "until", "{", "!", "then", "do", "else", "elif", "exec", "time", "command", "builtin", "nohup"}  # fmt: skip
"""A command follows these, as it does an assignment, or an option of one of them."""
_RUN_WORDS = {"bash", "sh", "eval", "env", "timeout", "nice", "sudo", "stdbuf", "numactl", "xargs", "parallel", "trap"}  # fmt: skip
MAY_CALL = re.compile("|".join(_COMMANDS).encode())
"""What is in the text of each script that calls one."""
_CALL = re.compile(rf"(?<![\w.-])({'|'.join(_COMMANDS)})(?![\w./-])")
_PIECE = re.compile(
    r"""(?P<space>\\\n|[ \t\r]+|<<<|(?<![^\s;&|()`])\#[^\n]*)
    |<<-?[ \t]*\\?(?P<quote>['"]?)(?P<here>\w+)(?P=quote)
    |(?P<function>\([ \t]*\))
    |(?P<value>\\.|\$?'(?:(?<=\$')(?:\\.|[^'\\])*|[^']*)'|\$\{[^}]*\}|\$?\(\(.*?\)\))
    |(?P<open>[$<>]?\(|[`"])
    |(?P<close>\))
    |(?P<redirect>\d*(?:&>>?|>>|>[&|]?|<[&>]?)[ \t]*[^\s;&|()<>"'`$]*)
    |(?P<end>\n|;;?&?|&&|\|[|&]?|&)
    |(?P<word>[^\s;&|()<>"'`$\\]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"""(?P<space>\\.|[^"$`\\]+|\$(?!\())|(?P<open>\$\(|[`"])""", re.DOTALL)


class Call(NamedTuple):
    """A call. `sure`: each run of the script comes to it. Else it is in a branch, a loop, a function or a text."""

    line: int
    command: str
    sure: bool


def calls_of(name: str, content: bytes) -> list[Call]:
    """The calls in a script that a shell runs; in others none is looked for."""
    first = content.partition(b"\n")[0]
    shell = re.search(rb"\b(ba|da|k|z)?sh\b", first) if first.startswith(b"#!") else not name.endswith(".py")
    return list(scheduler_calls(content.decode(errors="replace"))) if shell else []


def scheduler_calls(script: str) -> Iterator[Call]:
    """The calls in a script of bash or another POSIX shell. What follows a sure `exit` is not read."""
    parts, at, texts = [_part()], 0, list[str]()
    last = max((one.start() for one in _CALL.finditer(script)), default=-1)
    while at <= last and (match := (_QUOTED if parts[-1].close == '"' else _PIECE).match(script, at)):
        part, begin, at = parts[-1], at, match.end()
        kind, piece, first = match.lastgroup, match[0], part.start and not part.word
        reached = part.sure and not (part.either or part.function) and all(part.blocks)
        if kind in ("word", "value", "open"):
            part.word, part.empty = True, False
        if piece == part.close:
            parts.pop()
        elif kind == "space":
            part.word = False
        elif kind == "here":
            texts.append(match["here"])
        elif kind == "function":
            part.function = part.start = True
        elif kind == "open":
            plain = piece == '"' or script[begin - 1 : at] == "=("
            parts.append(_part(piece if piece in '"`' else ")", reached, plain))
            part.start, part.function = part.start and not first, part.function and not first
        elif kind in ("end", "close"):
            part.either = piece in ("&&", "||") or (part.either and (part.empty or piece[0] == "|"))
            part.start, part.word, part.empty = not part.plain, False, True
            while piece == "\n" and texts:
                end = re.compile(rf"^\t*{texts.pop(0)}$", re.MULTILINE).search(script, at)
                at = end.end() if end else len(script)
        elif kind in ("word", "value") and (first or (part.function and piece == "{")):
            name, rest = piece.rpartition("/")[2], script[at : at + 1000].partition("\n")[0]
            for called in [name] if name in _COMMANDS else _CALL.findall(rest)[:1] if name in _RUN_WORDS else []:
                yield Call(script.count("\n", 0, begin) + 1, called, reached and called == name)
            if piece == "exit" and reached and len(parts) == 1:
                return
            part.start = piece in _BEFORE or re.match(r"-|\w+(\[.*\])?\+?=", piece) is not None
            if piece in _BLOCKS:
                part.blocks.append(piece == "{" and not part.function)
            elif piece in ("fi", "done", "esac", "}"):
                del part.blocks[-1:]
            part.function = piece == "function" or (part.function and piece not in _BLOCKS)


def _part(close: str = "", sure: bool = True, plain: bool = False) -> SimpleNamespace:
    """The script, or a part of it that ends with `close`. `plain`: it has no commands. `blocks`: those that are open, and whether each is sure."""
    now = {"start": not plain, "word": False, "empty": True, "either": False, "function": False}
    return SimpleNamespace(close=close, sure=sure, plain=plain, blocks=[], **now)
