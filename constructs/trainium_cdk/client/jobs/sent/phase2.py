#!/usr/bin/env python3
"""Starts phase 2 of BERT from the checkpoint that there is: `phase2.py PROGRAM... -- STAGE PHASE1 [NEWEST]`.

PHASE1 is a checkpoint of phase 1, or the folder of a job that wrote some; NEWEST is the newest one of this job, if it has one. The program gets
the words by which it goes on from it. Graphs are compiled in the first steps: for the stage `precompile`, phase 1 ends where it starts.
"""

import os
import re
import sys
import zipfile
from pathlib import Path

CANNOT_START = 64
"""Exit code that ends the job: a second attempt would not help."""


def main() -> None:
    words = sys.argv[1:]
    end = len(words) - 1 - words[::-1].index("--")
    program, (stage, first, *newest) = words[:end], words[end + 1 :]
    phase1 = first if first.endswith(".pt") else newest_in(Path(first))
    start = newest[0] if newest else phase1
    ended = step_of(phase1 if stage == "train" else start)
    if ended < 0 or not (newest or Path(start).is_file()):
        print(f"trn: there is no checkpoint of phase 1: {phase1 or first}", file=sys.stderr)
        sys.exit(CANNOT_START)
    resume = ["--resume_ckpt", "--resume_ckpt_path", start, "--phase1_end_step", str(ended)]
    os.execvp(program[0], [*program, *resume])  # noqa: S606  it is no shell's line


def newest_in(folder: Path) -> str:
    """The newest checkpoint of a folder that was written to its end; empty if it has none."""
    for file in sorted(folder.glob("ckpt_*.pt"), key=lambda file: step_of(file.name), reverse=True):
        if is_whole(file):
            return str(file)
        print(f"trn: {file} was not written to its end: the one before it is used", file=sys.stderr, flush=True)
    return ""


def is_whole(file: Path) -> bool:
    """PyTorch writes ZIP archives, whose table of contents comes last."""
    with file.open("rb") as content:
        first = content.read(2)
    return bool(first) and (first != b"PK" or zipfile.is_zipfile(file))


def step_of(checkpoint: str) -> int:
    """The step in a checkpoint's name, ckpt_STEP.pt; -1 for another name."""
    found = re.search(r"ckpt_(\d+)\.pt$", checkpoint)
    return int(found[1]) if found else -1


if __name__ == "__main__":
    main()
