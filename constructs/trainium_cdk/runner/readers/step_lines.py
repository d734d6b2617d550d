"""One reader of the step lines that people's own scripts print: `read_step`, a pure function of one line.

It knows no program. A step line has a number after a word such as `step` or `iter`, and numbers after names such as `loss` or `lr`: by
`:`, `=`, a space, or as JSON. Lines of a validation are no training steps. Standard library only; never raises, whatever the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .records import COLOUR, Step, parse_number

MARKS = (
    "step",
    "Step",
    "STEP",
    "iter",
    "Iter",
    "ITER",
    "poch",
    "POCH",
    "%|",
    "|Loss:",
    "|loss:",
    "it ",
    "it:",
    "it=",
    "It ",
    "updates",
)
"""A line without any of these is no step line."""
EXAMPLES = ('{"step": 10, "loss": 3.4}', "step 10 loss 3.4")
"""Lines that are read, the recommended one first."""

_LONGEST = 4000
"""Characters of a line that are read; of one line of JSON, all."""
_NAME = 60
"""Characters of a name, with what stands between it and its number."""
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3}){1,5}(?![\d])(?:\.\d{1,30})?|\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?"
    r"|(?<![\w.])[-+]?(?:nan|inf)(?!\w)",
    re.IGNORECASE,
)
_COLOURS = re.compile(COLOUR)
_END = re.compile(
    r"[ \t]*(?::|=>?|->|#)?[ \t]*(?:[\w.]{0,20}(?:float\d{0,3}|tensor|array)\()?[\[(]{0,2}[ \t]*$", re.IGNORECASE
)
"""What stands between a name and its number."""
_WORDS = re.compile(r"[a-z_/.\- ]*$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SETTINGS = re.compile(r"(?:Namespace|Args|Arguments|Config|Configuration|Options|Parameters|Params|Settings)\(\w+=")
"""A program's settings, as Python prints them: their steps are none that it has made."""
_FLAG = re.compile(r"(?:^|\s)--?\w[\w-]*$")
_UNIT = re.compile(r"[ \t]{0,3}([a-z]{1,10}(?:(?:/| per )[a-z]{1,10}){0,2})(?![\w(])(?![ \t]{0,3}[:=])", re.IGNORECASE)
_NUMBERED = re.compile(r"[ \t]{1,3}[\d.]")
"""What follows a name: then it is no unit of the number before it."""
_THOUSANDS = re.compile(r"[kKM](?![A-Za-z0-9])")
_PARTS = re.compile(r"/| per ")
_BAR = re.compile(r"%\|[^|\r\n]{0,400}\|")
"""A progress bar, which may have digits in it."""
_VALIDATION = re.compile(
    r"(?<![\w/.\-])(?:val|valid|validat(?:e|es|ion|ing)|eval|evaluat(?:e|es|ion|ing)|test|testing|sanity|predicting)(?![\w/.\-])",
    re.IGNORECASE,
)
_TRIALS = frozenset({
    "val", "valid", "validate", "validation", "validating", "eval", "evaluate", "evaluation", "evaluating", "test", "testing", "dev", "sanity",
})  # fmt: skip
_MEASURES = frozenset({
    "loss", "acc", "accuracy", "ppl", "perplexity", "err", "error", "score", "auc", "bleu", "rouge", "mse", "mae", "rmse", "bpb", "tokens",
})  # fmt: skip
"""What is measured in a validation, and may stand beside the training's own numbers."""
_STEP_WORDS = frozenset({"step", "steps", "iter", "iters", "iteration", "iterations"})
_NO_STEP = _TRIALS | {
    "max", "maximum", "total", "num", "of", "warmup", "warm", "save", "saving", "log", "logging", "remaining", "per", "every", "from", "accumulation",
    "micro", "decay", "first", "checkpoint", "start", "end", "resume",
}  # fmt: skip
"""Words before `step` of which the number is not that of a step."""
_OTHER_LOSS = frozenset({
    "best", "lowest", "min", "minimum", "max", "initial", "previous", "expected", "target", "final",
})  # fmt: skip
_OTHER_RATE = frozenset({"max", "min", "peak", "base", "initial", "target", "final", "warmup"})
_TRAINING = frozenset({"", "train", "training", "trainer"})
_PER_SECOND = frozenset({"s", "sec", "second"})
_ITEMS = {
    **dict.fromkeys(("tok", "toks", "token", "tokens"), "tokens_per_second"),
    **dict.fromkeys(
        ("sample", "samples", "seq", "seqs", "sequence", "sequences", "example", "examples", "image", "images", "img", "imgs"), "throughput"
    ),
}  # fmt: skip
_NAMES = {
    "lr": "learning_rate",
    "learning rate": "learning_rate",
    "grad norm": "grad_norm",
    "gradient norm": "grad_norm",
    "gnorm": "grad_norm",
    "gradnorm": "grad_norm",
    "tps": "tokens_per_second",
    "wps": "tokens_per_second",
    "global batch size": "global_batch_size",
    "total steps": "total_steps",
    "max steps": "total_steps",
    "seconds": "seconds",
    "step time": "seconds",
    "iter time": "seconds",
    "iteration time": "seconds",
    "time per step": "seconds",
    "time per iter": "seconds",
    "time per iteration": "seconds",
    "sec step": "seconds",
    "s step": "seconds",
    "sec per step": "seconds",
    "seconds per step": "seconds",
    "step timing": "seconds",
    "ms step": "milliseconds",
    "ms per step": "milliseconds",
}
_SUFFICE = ("learning_rate", "grad_norm", "throughput", "tokens_per_second")
"""With one of these, a line without a loss is a step line."""


def what_to_print(log: Sequence[str]) -> str:
    """What to do where no line of a log was read: what to print, and the last of its lines that is not of `trn` itself."""
    lines = (_COLOURS.sub("", line).strip() for line in reversed(log))
    looked = next((line for line in lines if line and not _OURS.match(line)), "")
    first, second = EXAMPLES
    there = f". The last line of the log is: {looked[:200]}" if looked else ""
    return f"print one line for each step, for example {first} or: {second}{there}"


_OURS = re.compile(r"(?:\d{1,6}: )?trn: ")


class _Named(NamedTuple):
    """A number of a line. `words`: its name. `unit`: what follows it, small. `mark`: what stands directly before it, if it has no name."""

    value: str
    words: tuple[str, ...]
    unit: str
    mark: str


def read_step(line: str) -> Step | None:
    """The training step that a line tells of; None if it tells of none.

    >>> read_step("step 1/400 loss 3.48 lr 1e-4")
    Step(step=1, loss=3.48, learning_rate=0.0001, throughput=None, grad_norm=None, total_steps=400, global_batch_size=None, seconds=None, tokens_per_second=None)
    >>> read_step("step 3 of the installation took 4 s")
    """
    if not any(mark in line for mark in MARKS):
        return None
    text = _COLOURS.sub("", line) if "\x1b" in line else line
    if _SETTINGS.search(text):
        return None
    if "{" in text and (found := _of_json(text)) is not None:
        return found[0]
    text = _BAR.sub("%||", text[:_LONGEST].replace('"', "").replace("'", ""))
    named = list(_numbers(text))
    if validates("".join(_left(text, named))):
        return None
    return _made([each for each, _, _ in named])


def validates(text: str) -> bool:
    """Whether a text says that what follows is of a validation: it has such a word, which is no part of a longer name or a path."""
    return _VALIDATION.search(text) is not None


def _of_json(text: str) -> tuple[Step | None] | None:
    """The step of an object in a line, or that it is none; None if there is no object with a number of a step."""
    at, tries = text.find("{"), 3
    while at >= 0 and tries:
        try:
            found, _ = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).raw_decode(text, at)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            named = list(_flat(found, ()))
            if any(_is_step(one.words) for one in named):
                trial = validates(text[:at][-_LONGEST:]) or any(one.value.lower() in _TRIALS for one in named)
                return (None if trial else _made([one for one in named if _NUMBER.fullmatch(one.value)]),)
        at, tries = text.find("{", at + 1), tries - 1
    return None


def _flat(value: dict[str, Any], before: tuple[str, ...], depth: int = 4) -> Iterator[_Named]:
    for key, one in value.items():
        words = (*before, *_split(key[:_NAME]))
        if isinstance(one, dict) and depth:
            yield from _flat(one, words, depth - 1)
        elif isinstance(one, str):
            yield _Named(one[:_NAME], words, "", "")


def _split(name: str) -> tuple[str, ...]:
    return tuple(re.sub(r"[_/.\- ]+", " ", _CAMEL.sub(" ", name)).lower().split())


def _numbers(text: str) -> Iterator[tuple[_Named, int, int]]:
    """The numbers of a text, each with the place where its name begins and ends."""
    last = 0
    for match in _NUMBER.finditer(text):
        start, end = match.span()
        before = text[max(last, start - _NAME) : start]
        words, size = _name(before)
        value = match[0].replace(",", "")
        if (found := _THOUSANDS.match(text, end)) is not None:
            value, end = str(float(value) * (1000 if found[0].lower() == "k" else 1_000_000)), found.end()
        unit = ""
        if (found := _UNIT.match(text, end)) is not None and (not words or not _NUMBERED.match(text, found.end())):
            unit = found[1].lower()
            end = found.end() if unit == "ms" or _rate(tuple(_PARTS.split(unit))) else end
        yield _Named(value, words, unit, before), start - size, end
        last = end


@lru_cache(4096)
def _name(before: str) -> tuple[tuple[str, ...], int]:
    """The words of a name that ends a text, and how many characters it has with what follows it. Lines of a program have the same names."""
    text = before.replace("(ms)", " ms").replace("(s)", " seconds")
    end = _END.search(text)
    name = text[: end.start()] if end else text
    run = _WORDS.search(name)
    if run is None or _FLAG.search(name):
        return (), 0
    return _split(run[0]), min(len(before), len(run[0]) + len(text) - len(name))


def _left(text: str, named: list[tuple[_Named, int, int]]) -> Iterator[str]:
    """A text without the names of what is measured in a validation."""
    last = 0
    for one, begin, end in named:
        if one.words and one.words[-1] in _MEASURES:
            yield text[last:begin] + " "
            last = end
    yield text[last:]


def _is_step(words: tuple[str, ...]) -> bool:
    return words == ("it",) or (bool(words) and words[-1] in _STEP_WORDS and not _NO_STEP.intersection(words[-3:-1]))


def _made(numbers: list[_Named]) -> Step | None:
    values: dict[str, float | None] = {}
    loss: tuple[int, float | None] | None = None
    trial = False
    for one in numbers:
        field, value = _field(one.words, one.unit), parse_number(one.value)
        if field == "loss":
            rank = _rank(one.words[:-1])
            trial = trial or rank is None
            if rank is not None and (loss is None or rank < loss[0]):
                loss = rank, value
        elif field == "milliseconds":
            values.setdefault("seconds", None if value is None else value / 1000)
        elif field:
            values.setdefault(field, value)
    at = _position(numbers)
    if at is None or (loss is None and (trial or at.needs_loss or all(values.get(name) is None for name in _SUFFICE))):
        return None
    total, batch = at.total or _whole(values.pop("total_steps", None)), _whole(values.pop("global_batch_size", None))
    values.pop("total_steps", None)
    return Step(at.step, loss[1] if loss else None, total_steps=total, global_batch_size=batch, **values)


@lru_cache(4096)
def _field(words: tuple[str, ...], unit: str) -> str:
    """The field of `Step` that a number is; or `loss`, of whatever; or empty."""
    trial = bool(_TRIALS.intersection(words))
    if words[-1:] == ("loss",) or words[-2:] == ("loss", "step"):
        return "loss"
    if words == ("norm",):
        return "grad_norm"
    if not trial and (found := next((f for size in (4, 3, 2) if (f := _rate(_without(words)[-size:]))), "")):
        return found
    timed = words[:-1] if len(words) > 1 and words[-1] in ("ms", "seconds", "s") else words
    timed = timed[:-1] if timed[-1:] == ("in",) else timed
    names = [" ".join(timed[-size:]) for size in (3, 2, 1) if len(timed) >= size]
    found = next((_NAMES[name] for name in names if name in _NAMES), "")
    if trial or (found == "learning_rate" and _OTHER_RATE.intersection(words)):
        return ""
    in_ms = unit == "ms" or words[-1:] == ("ms",)
    if found:
        return "milliseconds" if found == "seconds" and in_ms else found
    if in_ms and (not words or words[-1] in ("time", "dt")):
        return "milliseconds"
    return "" if words and words[-1] in (*_STEP_WORDS, "epoch", "it") else _rate(tuple(_PARTS.split(unit)))


def _without(words: tuple[str, ...]) -> tuple[str, ...]:
    """Without `per device` and the like at the end, and without `per`."""
    short = tuple(word for word in words if word != "per")
    return short[:-1] if short[-1:] and short[-1] in ("device", "gpu", "core", "worker", "chip", "rank") else short


def _rate(words: tuple[str, ...]) -> str:
    """What is counted by the second, of words such as `tokens`, `s`."""
    words = _without(words)
    return _ITEMS.get(words[0], "") if len(words) == 2 and words[1] in _PER_SECOND else ""


def _rank(of: tuple[str, ...]) -> int | None:
    """How well a loss is the training's, by the words before `loss`: the smaller, the better; None if it is another's."""
    if _TRIALS.intersection(of) or _OTHER_LOSS.intersection(of):
        return None
    return 0 if (of[-1] if of else "") in _TRAINING else 1


class _At(NamedTuple):
    step: int
    total: int | None = None
    needs_loss: bool = False


def _position(numbers: list[_Named]) -> _At | None:
    """Which step it is: `global_step` first, then the first step that is named, a batch of an epoch, or what a progress bar counts."""
    found: dict[str, _At] = {}
    epoch, epochs, zero = None, None, False
    for index, one in enumerate(numbers):
        if (value := _whole(parse_number(one.value))) is None:
            continue
        after = numbers[index + 1] if index + 1 < len(numbers) else None
        total = _whole(parse_number(after.value)) if after and after.mark.strip() in ("/", "of") else None
        mark = one.mark.strip()
        if one.words[-1:] == ("epoch",):
            epoch, epochs, zero = value, total, False
        elif one.words[-2:] in (("global", "step"), ("num", "updates")) or one.words[-1:] == ("globalstep",):
            found.setdefault("global", _At(value))
        elif _is_step(one.words):
            found.setdefault(
                "step", _At(value, total if total and total >= value else None, one.words[-1].endswith("s"))
            )
        elif one.words[-1:] == ("batch",) and total:
            found.setdefault("part", _At(value, total, needs_loss=True))
        elif mark.endswith("%||") and total:
            found.setdefault("bar", _At(value, total, needs_loss=True))
        elif epoch is not None and total and mark in ("[", "][", ":", ""):
            found.setdefault("part", _At(value, total, needs_loss=True))
            zero = zero or mark == "]["
        elif mark == "|" and after and after.mark.lower().startswith("|loss"):
            found.setdefault("step", _At(value, needs_loss=True))
    if "global" in found:
        total = found["step"].total if "step" in found and not epoch else None
        return found["global"]._replace(total=total)
    at = found.get("step") or found.get("part") or found.get("bar")
    if at is None or at.total is None or epoch is None:
        return at
    # a bar's own epochs begin at 0, as Lightning's do; those that people print at 1
    before = epoch if zero or ("bar" in found and at is found["bar"] and epochs is None) else max(0, epoch - 1)
    return at._replace(step=before * at.total + at.step, total=epochs * at.total if epochs else None)


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 0 and value == int(value) else None
