"""The texts that a job's fields have: names, paths, and what is given to a kind's program."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from trainium_cdk.client.jobs.words import shown, wrong
from trainium_cdk.runner import arrays
from trainium_cdk.text import Text

Name = Annotated[
    str,
    Text(
        r"^[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?$",
        "small letters, digits, dots and hyphens, at most 40, with a letter or digit as the first and the last",
        "bert-large-2",
    ),
]
WORD = Text(
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$",
    "at most 63 letters, digits and . _ -, with a letter or digit as the first",
    "research",
)
Word = Annotated[str, WORD]
EnvName = Annotated[
    str,
    Text(
        r"^[A-Za-z_][A-Za-z0-9_]{0,127}$",
        "a name of letters, digits and _, with a letter or _ as the first",
        "HF_TOKEN",
    ),
]
SET_BY_RUNNER = {
    **dict.fromkeys(("MASTER_ADDR", "NNODES", "NODE_RANK"), "it is the node's own"),
    **dict.fromkeys(("NPROC_PER_NODE", "RANK", "LOCAL_RANK", "WORLD_SIZE"), "it is set for each process"),
    **dict.fromkeys(
        (
            "TRN_AGAIN",
            "TRN_ARRAY_COUNT",
            "TRN_ARRAY_INDEX",
            "TRN_CHECKPOINTS",
            "TRN_JOB_ID",
            "TRN_PROGRESS",
        ),
        "it is the job's own",
    ),
    **dict.fromkeys(("PATH", "PYTHONHOME", "VIRTUAL_ENV"), "the job's packages set it"),
}
"""Variables that the runner sets, and why: a program would not find its own value."""
AbsolutePath = Annotated[
    str, Text(r"^/[^\x00\n]*$", "a path on the cluster, which begins with a slash", "/efs/model", max_length=1024)
]
Image = Annotated[
    str,
    Text(
        r"^[a-z0-9][a-z0-9._:/-]*(:[A-Za-z0-9_.-]{1,128})?(@sha256:[0-9a-f]{64})?$",
        "the name of a container image",
        "111122223333.dkr.ecr.us-east-1.amazonaws.com/training:1",
    ),
]
ADDRESS = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\x00\n]*)?"
"""Regular expression of an address in S3."""
Data = Annotated[
    str,
    Text(
        rf"^(/[^\x00\n]*|{ADDRESS})$",
        "a directory on the cluster (/efs/...) or an address in S3",
        "s3://my-bucket/data",
    ),
]
Override = Annotated[
    str,
    Text(
        r"^[a-z][a-z0-9_.-]*(=[^\x00\n]*)?$",
        "KEY=VALUE, or KEY alone, with a key of small letters, digits and . _ -",
        "training.seq_len=4096",
        max_length=1000,
    ),
]
"""An option of a kind's program: KEY=VALUE, or KEY alone."""


def _array(array: str) -> str:
    if reason := arrays.problem(array):
        raise wrong(f"array is {shown(array)}: {reason}")
    return array


Array = Annotated[
    str,
    Text(
        f"^{arrays.PATTERN}$",
        f"indices from 0 to {arrays.MAX_MEMBERS - 1}: 0-99, or 0-99%8 (at most 8 at a time)",
        "1,3,10-20:2",
    ),
    AfterValidator(_array),
]
