"""What the number of a log's line is, by the words of its name and its unit: `field`, a pure function. Words are small, as `split` makes them."""

from __future__ import annotations

import re
from functools import lru_cache

TRIALS = frozenset({
    "val", "valid", "validate", "validation", "validating", "eval", "evaluate", "evaluation", "evaluating", "test", "testing", "dev", "sanity",
    "predict", "predicting",
})  # fmt: skip
"""Words of a validation or a test."""
MEASURES = frozenset({
    "loss", "acc", "accuracy", "ppl", "perplexity", "err", "error", "score", "auc", "bleu", "rouge", "mse", "mae", "rmse", "bpb", "tokens",
})  # fmt: skip
"""What is measured in a validation, and may stand beside the training's own numbers."""
STEP_WORDS = frozenset({"step", "steps", "iter", "iters", "iteration", "iterations", "update", "updates"})
WORKERS = frozenset({"device", "gpu", "core", "worker", "chip", "rank"})
_NO_STEP = frozenset({
    "max", "maximum", "total", "num", "of", "warmup", "warm", "save", "saving", "log", "logging", "remaining", "per", "every", "from", "accumulation",
    "micro", "decay", "first", "checkpoint", "start", "end", "resume",
})  # fmt: skip
"""Words before `step` of which the number is not that of a step."""
_OTHER_LOSS = frozenset({
    "best", "lowest", "min", "minimum", "max", "initial", "previous", "expected", "target", "final",
})  # fmt: skip
_OTHER_RATE = frozenset({"max", "min", "peak", "base", "initial", "target", "final", "warmup"})
_TRAINING = frozenset({"", "train", "training", "trainer"})
_SECONDS = frozenset({"s", "sec", "secs", "second", "seconds"})
_ONE = (STEP_WORDS | {"it", "its", "ba", "batch", "batches"}) - {"update", "updates"}
_ITEMS = {
    **dict.fromkeys(("tok", "toks", "token", "tokens"), "tokens"),
    **dict.fromkeys(("sample", "samples"), "samples"),
    **dict.fromkeys(("seq", "seqs", "sequence", "sequences"), "sequences"),
    **dict.fromkeys(("example", "examples"), "examples"),
    **dict.fromkeys(("image", "images", "img", "imgs"), "images"),
}
_NAMES = {
    "lr": "learning_rate",
    "learning rate": "learning_rate",
    "grad norm": "grad_norm",
    "gradient norm": "grad_norm",
    "gnorm": "grad_norm",
    "gradnorm": "grad_norm",
    "tps": "tokens_per_second",
    "wps": "tokens_per_second",
    "tgs": "tokens_per_second",
    "throughput": "throughput",
    "global batch size": "global_batch_size",
    **dict.fromkeys(
        ("total steps", "max steps", "total iters", "max iters", "total iterations", "max iterations", "training steps", "optimization steps"),
        "total_steps",
    ),
    "seconds": "seconds",
    **dict.fromkeys((f"{one} {what}" for one in ("step", "iter", "iteration", "batch") for what in ("time", "timing", "dt")), "seconds"),
    **dict.fromkeys((f"time per {one}" for one in ("step", "iter", "iteration", "batch")), "seconds"),
}  # fmt: skip
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_GAPS = re.compile(r"[_/.\- ]+")
_PARTS = re.compile(r"/| per ")


def split(name: str) -> tuple[str, ...]:
    """The words of a name.

    >>> split("trainLoss"), split("train/loss_step")
    (('train', 'loss'), ('train', 'loss', 'step'))
    """
    return tuple(_GAPS.sub(" ", _CAMEL.sub(" ", name)).lower().split())


def is_step(words: tuple[str, ...], *, trial: bool = False) -> bool:
    """Whether a number is that of a step. trial: in a line of a validation."""
    words = words[:-1] if len(words) > 1 and words[-1] in _TRAINING else words
    no = _NO_STEP if trial else _NO_STEP | TRIALS
    return words == ("it",) or (bool(words) and words[-1] in STEP_WORDS and not no.intersection(words[-3:-1]))


@lru_cache(4096)
def field(words: tuple[str, ...], unit: str) -> tuple[str, str]:
    """The field of `Step` that a number is, and its unit; or `loss`, of whatever; or `trial`, a validation's loss; or empty. Besides the fields
    there are `milliseconds` and `steps_per_second`."""
    trial = bool(TRIALS.intersection(words))
    if is_loss(words):
        return "trial" if trial else "loss", ""
    if words == ("norm",):
        return "grad_norm", ""
    if trial:
        return "", ""
    of_unit = speed(tuple(_PARTS.split(unit)))
    named = next((found for size in (5, 4, 3, 2) if (found := speed(words[-size:]))[0]), ("", ""))
    if named[0]:
        return named
    timed = words[:-1] if len(words) > 1 and (words[-1] == "ms" or words[-1] in _SECONDS) else words
    timed = timed[:-1] if timed[-1:] == ("in",) else timed
    name = next((_NAMES[name] for size in (3, 2, 1) if (name := " ".join(timed[-size:])) in _NAMES), "")
    in_ms = unit == "ms" or words[-1:] == ("ms",)
    if name == "throughput" or (not name and not (words and words[-1] in (*STEP_WORDS, "epoch", "it"))):
        if of_unit[0] or name:
            return of_unit if of_unit[0] else (name, "per second")
        return ("milliseconds", "") if in_ms and (not words or words[-1] in ("time", "dt", "took")) else ("", "")
    if name == "learning_rate" and _OTHER_RATE.intersection(words):
        return "", ""
    return "milliseconds" if name == "seconds" and in_ms else name, ""


def is_loss(words: tuple[str, ...]) -> bool:
    """Whether a number is a loss: `train loss`, `loss/train`, `loss_step`, `loss/train/total`; not `loss scale`."""
    if "loss" not in words:
        return words[-1:] == ("xent",)
    after = words[words.index("loss") + 1 :]
    return (
        not after
        or (after[-1] == "loss")
        or all(one in _TRAINING or one in TRIALS or one in ("step", "total", "avg", "mean", "value") for one in after)
    )


def speed(words: tuple[str, ...]) -> tuple[str, str]:
    """What is counted by the second, or how long a step takes, of words such as `tokens`, `s` or `s`, `it`: the field and its unit."""
    each = "/device" if WORKERS.intersection(words) else ""
    short = tuple(word for word in words if word != "per" and word not in WORKERS)
    if len(short) != 2:
        return "", ""
    first, second = short
    if second in _SECONDS and first in _ITEMS:
        item = _ITEMS[first]
        return "tokens_per_second" if item == "tokens" else "throughput", f"{item}/s{each}"
    if second in _SECONDS and first in _ONE:
        return "steps_per_second", ""
    if second in _ONE and (first in _SECONDS or first == "ms"):
        return "milliseconds" if first == "ms" else "seconds", ""
    return "", ""


def preference(words: tuple[str, ...]) -> int | None:
    """How well a loss is the training's, by its words: the smaller, the better; None if it is another's."""
    of = tuple(word for word in words if word not in ("loss", "step"))
    if _OTHER_LOSS.intersection(of):
        return None
    if of[:1] == ("reduced",):  # NeMo's, the mean of all workers
        return -1
    return 0 if (of[-1] if of else "") in _TRAINING else 1
