"""Models and data sets of Hugging Face, by its own libraries, in the cache `hf_cache` that all jobs share."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .making import Failed, Here, once, say

_MODEL = """import sys, huggingface_hub as hub
commit, model, *files = sys.argv[1:]
hub.snapshot_download(model, revision=commit, allow_patterns=files)"""
_DATASET = """import sys, datasets
datasets.load_dataset(*sys.argv[1:], split="train")"""


def model(here: Here, model: str, patterns: Sequence[str]) -> None:
    """Fetch a model's files of these patterns."""
    name = model.replace("/", "--")
    place = here.trn / "hf_cache" / "hub" / f"models--{name}"
    once(here, f"hf-{name}-{_short(model, *patterns)}", place, partial(_model, here, model, place, patterns))


def dataset(here: Here, words: Sequence[str]) -> None:
    """Read the part `train` of a data set: its name or a directory, and a configuration."""
    name = "-".join(words).replace("/", "-").replace(" ", "_")[-100:]
    place = here.trn / "hf_cache" / "datasets"
    once(here, f"hf-data-{name}-{_short(*words)}", place, partial(_dataset, here, words))


def _model(here: Here, model: str, place: Path, patterns: Sequence[str]) -> None:
    # files that come later are of the same commit as those that are there: each commit has its own folder
    newest = place / "refs" / "main"
    commit = (newest.read_text().strip() if newest.exists() else "") or "main"
    say(f"fetching {model} from Hugging Face: {' '.join(patterns)}")
    _run(here, f"{model} could not be fetched", _MODEL, commit, model, *patterns)


def _dataset(here: Here, words: Sequence[str]) -> None:
    say(f"reading the data set {' '.join(words)}")
    _run(here, f"the data set {' '.join(words)} could not be read", _DATASET, *words)


def _run(here: Here, failed: str, program: str, *words: str) -> None:
    variables = {**here.variables, "HF_HOME": str(here.trn / "hf_cache")}
    command = [here.python, "-c", program, *words]
    done = subprocess.run(
        command, env=variables, cwd=here.job, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise Failed(f"{failed}: see what its library says above")


def _short(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
