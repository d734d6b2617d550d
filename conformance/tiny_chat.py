"""`python tiny_chat.py FOLDER`: a language model with two layers, and conversations.

FOLDER/model/    as Transformers writes it, with a tokenizer of single bytes
FOLDER/chats/    JSON lines
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|im_end|>{% endfor %}"


def tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    plain = Tokenizer(models.BPE(vocab={word: n for n, word in enumerate(words)}, merges=[]))
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<pad>")  # noqa: S106  words
    made.chat_template = TEMPLATE
    return made


def main(folder: Path) -> None:
    words = tokenizer()
    config = Qwen3Config(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
    )  # fmt: skip
    words.save_pretrained(folder / "model")
    Qwen3ForCausalLM(config).save_pretrained(folder / "model")
    (folder / "chats").mkdir()
    rows = [
        {"messages": [{"role": "user", "content": f"{n} + 1?"}, {"role": "assistant", "content": f"It is {n + 1}."}]}
        for n in range(64)
    ]
    (folder / "chats/train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
