"""Lines of a scheduler in a user's script, such as `#SBATCH --nodes=3`. The scheduler that `trn` calls does not see them. Pure."""

from __future__ import annotations

import re

from trainium_cdk.jobs.quote import printed, split
from trainium_cdk.jobs.sbatch import may_pass_on

_LINE = re.compile(r"#(?P<of>SBATCH|PBS|BSUB|FLUX:)[ \t]+(?P<rest>[^\r\n]*)")
_OPTIONS = {
    "nodes": "nodes", "N": "nodes", "time": "time-limit", "t": "time-limit", "job-name": "name", "J": "name", "partition": "queue", "p": "queue",
    "account": "account", "A": "account", "qos": "qos", "q": "qos", "array": "array", "a": "array", "ntasks-per-node": "tasks-per-node",
}  # fmt: skip
"""Options of sbatch -> options of `trn submit` that take the same value (sbatch's manual, Slurm 25.11)."""
_SHORT = {"b": "begin", "d": "dependency", "L": "licenses", "w": "nodelist", "x": "exclude"}
"""Other options of sbatch, by their letters, that `trn submit --sbatch` passes on."""
_NEEDLESS = {
    "exclusive": "a job has its nodes to itself",
    "output": "trn logs prints it", "o": "trn logs prints it", "error": "trn logs prints it", "e": "trn logs prints it",
    "requeue": "trn requeues a job whose node fails", "export": "--env sets variables", "chdir": "--workdir sends the folder",
    "D": "--workdir sends the folder",
}  # fmt: skip


def refused(content: bytes) -> str:
    """Why a script with such lines before its first command is refused, and what to write instead; empty for other scripts."""
    lines, taken, needless, unknown = 0, [], [], []
    for text in content.decode(errors="replace").splitlines():
        if text.strip() and not text.startswith("#"):
            break  # sbatch reads no further
        match = _LINE.match(text)
        if match is None:
            continue
        lines += 1
        for option, value in _parsed(match["rest"]) if match["of"] == "SBATCH" else []:
            shown = f"{'-' if len(option) == 1 else '--'}{option}"
            if option in _OPTIONS:
                taken.append(printed(f"--{_OPTIONS[option]}", _as_taken(_OPTIONS[option], value)))
            elif option in _NEEDLESS:
                needless.append(f"{shown} is not needed: {_NEEDLESS[option]}")
            elif may_pass_on(_SHORT.get(option, option)) and (len(option) > 1 or option in _SHORT):
                name = _SHORT.get(option, option)
                taken.append(printed("--sbatch", f"--{name}={value}" if value else f"--{name}"))
            else:
                unknown.append(f"trn submit has no option for {shown}")
    if not lines:
        return ""
    instead = f", and submit it with {' '.join(dict.fromkeys(taken))}" if taken else ""
    has = f"has {lines} lines of a scheduler" if lines > 1 else "has a line of a scheduler"
    first = f"{has} (#SBATCH or similar), which nothing reads here. Remove {'them' if lines > 1 else 'it'}{instead}"
    return ". ".join([first, *dict.fromkeys([*needless, *unknown])])


def _as_taken(option: str, value: str) -> str:
    """A value of sbatch in the form that `trn submit` takes."""
    if option == "nodes":
        return value.rpartition("-")[2]  # the most of a range
    if option == "name":
        return re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    if option == "time-limit":
        days, dash, clock = value.rpartition("-")
        parts = clock.split(":")
        if dash:  # D-HH, D-HH:MM
            return f"{days}-{':'.join([*parts, '00', '00'][:3])}"
        return f"00:{clock}" if len(parts) == 2 else value  # MM:SS
    return value


def _parsed(text: str) -> list[tuple[str, str]]:
    """The options of a line and their values; what follows a # is a comment."""
    options: list[tuple[str, str]] = []
    for word in split(text):
        if word.startswith("--"):
            option, _, value = word[2:].partition("=")
            options.append((option, value))
        elif word.startswith("-") and len(word) > 1:
            options.append((word[1], word[2:].removeprefix("=")))
        elif options and not options[-1][1]:
            options[-1] = (options[-1][0], word)
    return options
