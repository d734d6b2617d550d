#!/usr/bin/env bash
# Tool: tqdm 4.68.1 (PyPI).
# Expected: the rate of a bar is that of the steps that it has counted itself, also where a resumed training first skips its earlier steps.
# Seen: the skip counts as very quick steps, and leaves the smoothed mean only after some 20 steps. Until then the rate, and the time left, are
# several times too good. `initial=` avoids it.
# Output: seconds a step as printed at the tenth step after a skip of 100, where each takes 0.1 s: about 0.05; with `initial=`: about 0.1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet tqdm==4.68.1
venv/bin/python - <<'PROGRAM'
import io
import time

import tqdm


def printed(**options):
    bar = tqdm.tqdm(total=200, file=io.StringIO(), mininterval=0, miniters=1, **options)
    if not options:
        bar.update(100)  # what Trainer does for the steps before the checkpoint
    for _ in range(10):
        time.sleep(0.1)
        bar.update(1)
    return 1 / bar.format_dict["rate"] if bar.format_dict["rate"] else (time.time() - bar.start_t) / (bar.n - bar.initial)


skipped, initial = printed(), printed(initial=100)
print("tqdm", tqdm.__version__)
print(f"{skipped:.3f} s a step; with initial= {initial:.3f} s")
assert skipped < 0.07 < 0.09 < initial < 0.15
PROGRAM
