"""Calls of a scheduler's own launchers in a shell script, found in its text. Pure: nothing is run, and no variable has a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_COMMANDS = ("srun", "mpirun", "mpiexec", "sbatch", "salloc")
_BEFORE = {
    "!",
    "then",
    "do",
    "else",
    "elif",
    "exec",
    "time",
    "command",
    "builtin",
    "nohup",
    "if",
    "while",
    "until",
    "{",
}
"""A command follows these, as it does an assignment or an option of one of them."""
_BLOCKS = {"if", "while", "until", "for", "select", "case", "{"}
_RUN_THEIR_WORDS = {
    "bash",
    "sh",
    "eval",
    "env",
    "timeout",
    "nice",
    "sudo",
    "stdbuf",
    "numactl",
    "xargs",
    "parallel",
    "trap",
}
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


@dataclass
class _Part:
    """The script, or a part of it that ends with `close`; `start`: the next word is a command; `blocks`: the open ones, and whether each is sure."""

    close: str = ""
    sure: bool = True
    plain: bool = False
    start: bool = True
    word: bool = False
    empty: bool = True
    either: bool = False
    function: bool = False
    blocks: list[bool] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        return self.sure and not self.either and not self.function and all(self.blocks)


def scheduler_calls(script: str) -> Iterator[Call]:
    """The calls in a script of bash or another POSIX shell. What follows a sure `exit` is not read."""
    parts, at, texts = [_Part()], 0, list[str]()
    last = max((one.start() for one in _CALL.finditer(script)), default=-1)
    while at <= last and (match := (_QUOTED if parts[-1].close == '"' else _PIECE).match(script, at)):
        part, begin, at = parts[-1], at, match.end()
        kind, piece = match.lastgroup, match[0]
        if piece == part.close:
            parts.pop()
        elif kind == "space":
            part.word = False
        elif kind == "here":
            texts.append(match["here"])
        elif kind == "function":
            part.function = part.start = True
        elif kind in ("end", "close"):
            part.either = piece in ("&&", "||") or (part.either and (part.empty or piece[0] == "|"))
            part.start, part.word, part.empty = not part.plain, False, True
            while piece == "\n" and texts:
                end = re.compile(rf"^\t*{texts.pop(0)}$", re.MULTILINE).search(script, at)
                at = end.end() if end else len(script)
        elif kind in ("word", "value", "open"):
            first, part.word, part.empty = part.start and not part.word, True, False
            if kind == "open":
                plain = piece == '"' or script[begin - 1 : at] == "=("
                parts.append(_Part(piece if piece in '"`' else ")", part.reached, plain, not plain))
                part.start, part.function = part.start and not first, part.function and not first
            elif first or (part.function and piece == "{"):
                for command, sure in _read_command(part, piece, script[at : at + 1000].partition("\n")[0]):
                    yield Call(script.count("\n", 0, begin) + 1, command, sure)
                if piece == "exit" and part.reached and len(parts) == 1:
                    return


def _read_command(part: _Part, word: str, rest: str) -> Iterator[tuple[str, bool]]:
    name = word.rpartition("/")[2]
    part.start = word in _BEFORE or re.match(r"-|\w+(\[.*\])?\+?=", word) is not None
    if name in _COMMANDS:
        yield name, part.reached
    elif name in _RUN_THEIR_WORDS and (called := _CALL.search(rest)):
        yield called[1], False
    elif word in _BLOCKS:
        part.blocks.append(word == "{" and not part.function)
        part.function = False
    elif word in ("fi", "done", "esac", "}") and part.blocks:
        part.blocks.pop()
    part.function = part.function or word == "function"
