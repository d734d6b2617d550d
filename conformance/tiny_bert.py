"""`python tiny_bert.py FOLDER`, in the vendor's environment: a BERT with two layers, and shards of random tokens for two phases.

FOLDER/models/bert-large-uncased/   config.json, pytorch_model.bin, and a file that no job downloads
FOLDER/shards128, shards512/        hdf5 shards as in the vendor's data sets
"""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import numpy as np
from transformers import BertConfig, BertForPreTraining

VOCABULARY = 512
SHARDS = 8
ROWS = 24


def model(folder: Path) -> None:
    """It has the name that the script loads, and a smaller size."""
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=512,
    )
    BertForPreTraining(config).save_pretrained(folder, safe_serialization=False)
    (folder / "model.safetensors").write_bytes(b"another format of the weights")


def shards(folder: Path, length: int, masked: int) -> None:
    """Random tokens; `masked` in each sequence are to be predicted."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(SHARDS):
        with h5py.File(folder / f"wikicorpus_training_{number}.hdf5", "w") as file:
            file["input_ids"] = random.integers(5, VOCABULARY, (ROWS, length), dtype=np.int32)
            file["input_mask"] = np.ones((ROWS, length), np.int8)
            file["segment_ids"] = np.zeros((ROWS, length), np.int8)
            file["masked_lm_positions"] = np.tile(np.arange(1, masked + 1, dtype=np.int32), (ROWS, 1))
            file["masked_lm_ids"] = random.integers(5, VOCABULARY, (ROWS, masked), dtype=np.int32)
            file["next_sentence_labels"] = random.integers(0, 2, (ROWS,), dtype=np.int8)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    model(target / "models/bert-large-uncased")
    shards(target / "shards128", 128, 20)
    shards(target / "shards512", 512, 80)
