"""Models and data sets on Hugging Face: their names, where `prepare` puts them, and those that need a token."""

from __future__ import annotations

from typing import Annotated

from trainium_cdk.client.jobs.models import Job
from trainium_cdk.errors import JobError
from trainium_cdk.text import Text

_PART = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
Model = Annotated[str, Text(f"^{_PART}/{_PART}$", "OWNER/NAME, as on huggingface.co", "Qwen/Qwen3-8B", max_length=200)]
"""OWNER/NAME."""
Dataset = Annotated[
    str,
    Text(
        f"^{_PART}/{_PART}( {_PART})?$",
        "OWNER/NAME, as on huggingface.co, and a space and a configuration if it has several",
        "trl-lib/Capybara",
        max_length=300,
    ),
]
"""OWNER/NAME, and the name of a configuration."""
TOKEN = "HF_TOKEN"  # noqa: S105  the name of a variable
_GATED = ("meta-llama/",)
"""Beginnings of names of models that need a token (huggingface.co/meta-llama, 2026-11). Others report it when they are fetched."""
_TOKENIZER = ("*.json", "*.model", "merges.txt")
_WEIGHTS = "*.safetensors"


def check_home(job: Job) -> None:
    """Check that a job whose models and data `prepare` fetches does not name another folder for them.

    Raises:
        JobError: it does.
    """
    if home := job.env.get("HF_HOME"):
        raise JobError(
            f"env HF_HOME is {home}, but {job.kind} reads models and data sets where `prepare` puts them, in trn/hf_cache of the shared file "
            "system. Remove it"
        )


def check_gated(job: Job, model: str, otherwise: str) -> None:
    """Check that a job has a token for a model that only some may read.

    Args:
        otherwise: the option that names a directory with its files.

    Raises:
        JobError: it has none.
    """
    if model.startswith(_GATED) and TOKEN not in job.env:
        raise JobError(
            f"{model} is gated: Hugging Face gives it to those who have accepted its licence. Accept it there, and give your token as "
            f"--env {TOKEN} (your shell gives the value); or put its files on the cluster (`hf download`), and name their "
            f"directory as {otherwise}"
        )
