"""Small versions of the tutorials' public data sets, under their real bucket names and keys in the local AWS.

The text is generated, the same each time: sentences of common words, with enough structure for a small model to learn.
BERT shards have the vendor's file names and contain that text instead of HDF5. GPT files have Megatron's real format.
"""

from __future__ import annotations

import io
import json
import random
import struct
import tarfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

NEURON_BUCKET = "neuron-s3"
HUGGINGFACE_BUCKET = "models.huggingface.co"

SHARDS = 2048
"""Data files of a BERT set: the vendor's script needs one for each worker, and 64 virtual nodes have 2048."""

_SHARD_BYTES = 512
_BERT = "training_datasets/bert_pretrain_wikicorpus_tokenized_hdf5"
_GPT = "training_datasets/gpt/wikipedia"
_PROSE = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one "
    "you were all her she there would their we him been has when who will no more if out so up said what its about than "
    "into them can only other time new some could these two may first then do any like my now over such our man me even "
    "most made after also did many off before must well back through years much where your way down should because long "
    "each just state those people too mr how little good world make very year still see own work men day get here old "
    "life both between being under three never know same last another while us might great go come since against right"
)


def text(size: int, seed: int = 0) -> bytes:
    """`size` bytes of sentences, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311  repeatable is what it must be
    words = _PROSE.split()
    parts: list[str] = []
    length = 0
    while length < size:
        sentence = " ".join(rng.choices(words, k=rng.randint(6, 14))) + ". "
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts).encode()[:size]


def bert_tar(sequence_length: int, shards: int = SHARDS) -> bytes:
    """The tar archive of a BERT set, like the vendor's: one directory with its files."""
    name = f"bert_pretrain_wikicorpus_tokenized_hdf5_seqlen{sequence_length}"
    words = text(shards * _SHARD_BYTES, seed=sequence_length)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for i in range(shards):
            entry = tarfile.TarInfo(f"{name}/wikicorpus_en_training_{i}.hdf5")
            entry.size = _SHARD_BYTES
            tar.addfile(entry, io.BytesIO(words[i * _SHARD_BYTES : (i + 1) * _SHARD_BYTES]))
    return packed.getvalue()


def gpt_files() -> dict[str, bytes]:
    """`.bin` and `.idx` of a memory-mapped Megatron data set (16-bit tokens, here one per byte), by file name."""
    documents = [text(size, seed=size) for size in range(2000, 6000, 40)]
    sizes = [len(document) for document in documents]
    starts = [2 * sum(sizes[:i]) for i in range(len(sizes))]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1)
    index += struct.pack(f"<{len(sizes)}i{len(sizes)}q", *sizes, *starts)
    index += struct.pack(f"<{len(sizes) + 1}q", *range(len(sizes) + 1))
    tokens = b"".join(struct.pack(f"<{len(document)}H", *document) for document in documents)
    prefix = "my-gpt2_text_document"
    return {
        f"{prefix}.bin": tokens,
        f"{prefix}.idx": index,
        "license.txt": b"Made up by the sandbox; no one's words.\n",
    }


def objects() -> Iterator[tuple[str, str, bytes]]:
    """Every object of the tutorials' data sets: bucket, key, content."""
    for length in (128, 512):
        yield NEURON_BUCKET, f"{_BERT}/bert_pretrain_wikicorpus_tokenized_hdf5_seqlen{length}.tar", bert_tar(length)
    for name, content in gpt_files().items():
        yield NEURON_BUCKET, f"{_GPT}/{name}", content
    vocabulary = {chr(code): code for code in range(256)}
    yield HUGGINGFACE_BUCKET, "bert/gpt2-vocab.json", json.dumps(vocabulary).encode()
    yield HUGGINGFACE_BUCKET, "bert/gpt2-merges.txt", b"#version: 0.2\n"


def seed_datasets(client: S3Client) -> list[str]:
    """Put the data sets into the local AWS; returns their `s3://` addresses. Can be called again.

    Args:
        client: a boto3 S3 client of the local AWS.
    """
    there = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    addresses = []
    for bucket, key, content in objects():
        if bucket not in there:
            region = client.meta.region_name
            place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            client.create_bucket(Bucket=bucket, **place)  # type: ignore[arg-type]
            there.add(bucket)
        client.put_object(Bucket=bucket, Key=key, Body=content)
        addresses.append(f"s3://{bucket}/{key}")
    return addresses
