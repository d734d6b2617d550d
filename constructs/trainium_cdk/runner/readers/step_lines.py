"""One reader of the step lines that people's own scripts print: `read_line`, a pure function of one line.

It knows no program. A step line has a number after a word such as `step` or `iter`, or a counter such as `[10/100]`, and numbers after names
such as `loss` or `lr`: by `:`, `=`, a space, or as JSON. Lines of a validation are not training steps. What only the lines together tell is in
`course.py`. Standard library only; never raises, whatever the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from . import (
    COLOUR,
    MEASURES,
    TRIALS,
    Evaluation,
    Step,
    field,
    is_loss,
    is_step,
    parse_number,
    preference,
    speed,
    split,
)

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
    "oss",
    "OSS",
    "it ",
    "it:",
    "it=",
    "It ",
)
"""A line without any of these is not a step line."""
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
_IN = re.compile(r"\(([A-Za-z/_ ]{1,24})\)")
"""A part of a name in parentheses, such as its unit."""
_WORDS = re.compile(r"[a-z_/.\- ]*$", re.IGNORECASE)
_SETTINGS = re.compile(r"(?:Namespace|Args|Arguments|Config|Configuration|Options|Parameters|Params|Settings)\(\w+=")
"""A program's settings, as Python prints them: their steps are none that it has made."""
_WANDB = re.compile(r"(?:^|[\]:] ?)wandb: ")
"""What Weights & Biases prints for itself: its summary repeats the last values, without their step."""
_FLAG = re.compile(r"(?:^|\s)--?\w[\w-]*$")
_UNIT = re.compile(r"[ \t]{0,3}([a-z]{1,10}(?:(?:/| per )[a-z]{1,10}){0,2})(?![\w(])(?![ \t]{0,3}[:=])", re.IGNORECASE)
_NUMBERED = re.compile(r"[ \t]{1,3}[\d.]")
"""What follows a name: then it is not a unit of the number before it."""
_THOUSANDS = re.compile(r"[kKM](?![A-Za-z0-9])")
_PARTS = re.compile(r"/| per ")
_BAR = re.compile(r"\d{0,3}%\|[^|\r\n]{0,400}\|")
"""A progress bar, which may have digits in it. Its title may be the word step: its percentage is not a step."""
_OF_TRAINING = re.compile(
    r"[^\w\[]{0,20}%\|\||.{0,60}\b(?:train\w{0,8}|epoch|steps?|iter\w{0,8})\b[^%]{0,30}%\|\|",
    re.IGNORECASE,
)
"""A progress bar of a training: its title says so, or it has none."""
_ITEM = r"(?!(?:[kMGT]?(?:it|its|ba|batch|batches|steps?|iters?|iterations?|epochs?))\b)[A-Za-z]{1,20}"
_OF_ITEMS = re.compile(rf"%\|\|.{{0,80}}[,\[] {{0,3}}(?:[\d.]{{1,12}}[kMGT]?|\?)(?: ?{_ITEM}/s|s/ ?{_ITEM})\b")
"""The rate of a bar that counts bytes, files or examples, as bars of downloads and of the library `datasets` do."""
_LABELS = re.compile(r"^ {0,6}(?:\d{1,6}: )?(?:\[(?:default|rank ?)?\d{1,6}\]:)?", re.IGNORECASE)
"""The node and the worker before a line: no title of a bar."""
_OF_EPOCHS = re.compile(r"\W{0,9}epochs?\W{0,9}%\|\|", re.IGNORECASE)
"""A bar of epochs above the bars of their steps. It counts the epochs that have ended, so the steps' bars begin at 0."""
_TITLED = re.compile(r"[^%]{0,80}[A-Za-z][^%]{0,80}%\|\|")
_VALIDATION = re.compile(
    r"(?<![\w/.\-])(?:val|valid|validat(?:e|es|ion|ing)|eval|evaluat(?:e|es|ion|ing)|(?P<test>test|testing)|sanity|predicting)(?![\w/.\-])",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    r"(?:^|[-|:>\]] |  )\W{0,20}(?:(?:training|starting|begin|beginning|train) )?epoch\W{0,4}(\d{1,9})(?: ?(?:/|of) ?(\d{1,9}))?\W{0,80}$",
    re.IGNORECASE,
)
"""A line of its own before an epoch's lines, as Keras prints it."""
_RANK = re.compile(r"(?<![\w/])(?:rank|device=xla)[\s_:=#\[]{0,4}(\d{1,6}(?:/\d{1,6})?)", re.IGNORECASE)
_COUNTED = frozenset({"batch", "batches", "progress", "train", "training", "info", "iter", "samples"})
"""Words before a counter such as `10/100`."""
_SUFFICE = ("learning_rate", "grad_norm", "throughput", "tokens_per_second")
"""With one of these, a line without a loss is a step line."""


_TURNED = (
    (re.compile(r"(?<![\w.])(\d{1,12}(?:\.\d{1,6})?[kM]?)it/(\d{1,12}(?:\.\d{1,6})?[kM]?)it(?!\w)"), r"step \1/\2"),
    (
        re.compile(
            r"(loss) {0,2}(?:at|after|@) {0,2}(?:(?:step|iter|iteration) {1,2})?(\d{1,12}) {0,2}[:=]", re.IGNORECASE
        ),
        r"step \2 \1 ",
    ),
    (re.compile(r"^(.{0,100}\.py:\d{1,6}\] )\[(\d{1,12})\] (?=[\w/]{1,60}=)"), r"\1step \2 "),
)
"""Other orders of the same words: `120it/1.00kit` (Levanter); `loss at iteration 120: 2.31`; `logging_writer.py:48] [120] loss=2.31` (clu)."""


_RICH = re.compile(
    r"(?:\bEpoch {1,3}(\d{1,9})(?:/(-?\d{1,9}))? {1,20})?(?:[━╸╺]{1,400}|-{5,400}) {1,9}(?:\d{1,3}% {1,9})?(?:[•|] {1,9})?"
    r"(\d{1,15})/(\d{1,15}|--)(?= {1,9}(\d{1,3}:\d\d:\d\d • )?)"
)
"""A bar by rich, which counts as one by tqdm does. Lightning's has two times; its epoch and the last one are both from 0 (-2: only steps are limited),
and its batches may have no number (`--`)."""


def _of_rich(found: re.Match[str]) -> str:
    """The same, as a bar by tqdm."""
    epoch, last, batch, batches, lightning = found.groups()
    from_0 = 1 if lightning else 0
    of = f"/{int(last) + from_0}" if last and int(last) >= 0 else ""
    named = f"epoch {int(epoch) + from_0}{of} " if epoch else ""
    return f"{named}batch {batch}" + (f"/{batches}" if batches != "--" else "")


class StepLine(NamedTuple):
    """The data of one line of a log.

    Attributes:
        step: of the training. trials: losses of validations and tests.
        form: how the step is counted. `step`: by its name; `part`, `bar`: as a part of an epoch, or by a progress bar; `epoch`: by epochs; `title`:
            nothing but an epoch begins; `progress`: a bar without a loss; `ended`: one with a title, at its end; `none`: not at all.
        epoch, epochs: if it has them. first: the number of the first epoch, as such lines usually have it.
        rank: the worker that it names, or empty.
        bare: whether it has no loss. A NaN is one.
    """

    step: Step | None
    trials: tuple[Evaluation, ...] = ()
    form: str = "none"
    epoch: int | None = None
    epochs: int | None = None
    first: int = 1
    rank: str = ""
    bare: bool = False


def what_to_print(log: Sequence[str]) -> str:
    """Describe the lines to print, where no line of a log was read. Quote the last of its lines that is not of `trn` itself."""
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


def read_line(line: str) -> StepLine | None:
    """Read a line of a training; None if it has no data of one.

    >>> read_line("step 1/400 loss 3.48").step
    Step(step=1, loss=3.48, learning_rate=None, throughput=None, grad_norm=None, total_steps=400, global_batch_size=None, seconds=None, tokens_per_second=None, unit=None)
    >>> read_line("eval step 20 loss 5.1").trials
    (Evaluation(step=20, loss=5.1, of='validation'),)
    >>> read_line("step 3 of the installation took 4 s")
    """
    if not any(mark in line for mark in MARKS):
        return None
    text = _COLOURS.sub("", line) if "\x1b" in line else line
    if _SETTINGS.search(text) or _WANDB.search(text):
        return None
    if "{" in text and (named := _of_json(text)) is not None:
        numbers, around = named
    else:
        text = _BAR.sub("%||", text[:_LONGEST].replace('"', "").replace("'", ""))
        for order, usual in _TURNED:
            text = order.sub(usual, text)
        text = _RICH.sub(_of_rich, text)
        places = list(_numbers(text))
        numbers, around = [each for each, _, _ in places], "".join(_left(text, places))
        if title := _EPOCH.search(text[:200]) if "poch" in text.lower() else None:
            return StepLine(None, (), "title", int(title[1]), int(title[2]) if title[2] else None)
    both = any(one.words == ("loss", "train") for one in numbers)
    found = None if both else _VALIDATION.search(around)
    made = _trial(numbers, _of(found["test"])) if found else _line(numbers, text if "{'" not in line else "{'" + text)
    rank = _RANK.search(text[:_LONGEST]) if made else None
    return made._replace(rank=rank[0]) if made and rank else made


def validates(text: str) -> bool:
    """Return whether a text announces a validation: it has such a word, which is not part of a longer name or a path."""
    return _VALIDATION.search(text) is not None


def _of(test: object) -> str:
    return "test" if test else "validation"


def _of_json(text: str) -> tuple[list[_Named], str] | None:
    """The numbers of an object in a line, and the words around it that may say that it is of a validation; None if it has neither a step nor a
    loss."""
    at, tries = text.find("{"), 3
    while at >= 0 and tries:
        try:
            found, _ = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).raw_decode(text, at)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            named = list(_flat(found, ()))
            if any(is_step(one.words, trial=True) or "loss" in one.words for one in named):
                words = " ".join(one.value for one in named if one.value.lower() in TRIALS)
                return [one for one in named if _NUMBER.fullmatch(one.value)], f"{text[:at][-_LONGEST:]} {words}"
        at, tries = text.find("{", at + 1), tries - 1
    return None


def _flat(value: dict[str, Any], before: tuple[str, ...], depth: int = 4) -> Iterator[_Named]:
    for key, one in value.items():
        words = (*before, *split(key[:_NAME]))
        if isinstance(one, dict) and depth:
            yield from _flat(one, words, depth - 1)
        elif isinstance(one, str):
            yield _Named(one[:_NAME], words, "", "")


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
            end = found.end() if unit == "ms" or speed(tuple(_PARTS.split(unit)))[0] else end
        yield _Named(value, words, unit, before), start - size, end
        last = end


@lru_cache(4096)
def _name(before: str) -> tuple[tuple[str, ...], int]:
    """The words of a name that ends a text, and how many characters it has with what follows it. Lines of a program have the same names."""
    text = _IN.sub(r" \1 ", before)
    end = _END.search(text)
    name = text[: end.start()] if end else text
    run = _WORDS.search(name)
    if run is None or _FLAG.search(name):
        return (), 0
    return split(run[0]), min(len(before), len(run[0]) + len(text) - len(name))


def _left(text: str, named: list[tuple[_Named, int, int]]) -> Iterator[str]:
    """A text without the names of what is measured in a validation."""
    last = 0
    for one, begin, end in named:
        if one.words and (one.words[-1] in MEASURES or is_loss(one.words)):
            yield text[last:begin] + " "
            last = end
    yield text[last:]


def _trial(numbers: list[_Named], of: str) -> StepLine | None:
    """A line of a validation: its loss, and the training's step if it has that. A counter is one of its own batches."""
    at = _position(numbers, trial=True)
    step = at.step if at and at.form == "step" and at.total is None and at.epoch is None else None
    for one in numbers:
        if "running" in one.words:  # a mean of a part of it
            continue
        if field(one.words, one.unit)[0] in ("loss", "trial") and preference(one.words) is not None:
            of = _of("test" in one.words) if TRIALS.intersection(one.words) else of
            return StepLine(None, (Evaluation(step, parse_number(one.value), of),))
    return None


def _line(numbers: list[_Named], text: str) -> StepLine | None:
    """A line of the training, which may also have the losses of validations."""
    values: dict[str, float | None] = {}
    units: dict[str, str] = {}
    loss: tuple[int, float | None] | None = None
    trials: dict[str, float | None] = {}
    for one in numbers:
        (name, unit), value = field(one.words, one.unit), parse_number(one.value)
        if name in ("loss", "trial"):
            rank = preference(one.words)
            if name == "trial" and rank is not None:
                trials.setdefault(_of("test" in one.words), value)
            elif rank is not None and (loss is None or rank < loss[0]):
                loss = rank, value
        elif name in _SECONDS:
            values.setdefault("seconds", None if not value else _SECONDS[name](value))
        elif name and name not in values:
            values[name], units[name] = value, unit
    if "seconds" not in values and any(one.words == ("data",) for one in numbers):
        values["seconds"] = next((parse_number(one.value) for one in numbers if one.words == ("time",)), None)
    if loss and loss[1] == 0 and any(_is_lost(one) for one in numbers):
        loss = loss[0], None
    at = _position(numbers) or _At()
    if at.form == "epoch" and "{'" in text:  # the Trainer's: a part of it, such as 0.31
        at = _At()
    total = at.total or _whole(values.pop("total_steps", None))
    values.pop("total_steps", None)
    made = Step(
        at.step,
        loss[1] if loss else None,
        total_steps=total,
        global_batch_size=_whole(values.pop("global_batch_size", None)),
        unit=units.get("throughput") or units.get("tokens_per_second") or None,
        **values,
    )
    form = at.form or _form(numbers, made, text, told=loss is not None)
    others = tuple(
        Evaluation(at.step if at.form == "step" and at.epoch is None else None, value, of)
        for of, value in trials.items()
    )
    if form == "bar" and loss is None:
        text = _LABELS.sub("", text)
        if _OF_EPOCHS.match(text) and not others:
            return StepLine(None, (), "title", at.step, at.total, 0)
        form = "progress" if _OF_TRAINING.match(text) and not _OF_ITEMS.search(text) else ""
        if form and total == at.step and _TITLED.match(text):
            form = "ended"
    elif at.form and loss is None and (trials or at.needs_loss or all(values.get(name) is None for name in _SUFFICE)):
        form = ""
    if not form and not others:
        return None
    return StepLine(made if form else None, others, form, at.epoch, at.epochs, at.first, bare=loss is None)


def _is_lost(one: _Named) -> bool:
    """Return whether a number is a norm of gradients that is NaN or infinite. Hugging Face's Trainer then prints a loss of 0: it leaves such a loss
    out of its mean (`logging_nan_inf_filter`)."""
    return field(one.words, one.unit)[0] == "grad_norm" and not math.isfinite(float(one.value))


_SECONDS = {
    "seconds": lambda value: value,
    "milliseconds": lambda value: value / 1000,
    "steps_per_second": lambda value: 1 / value,
}


def _form(numbers: list[_Named], made: Step, text: str, *, told: bool) -> str:
    """Return the form of a line without a position: a dictionary of Hugging Face's Trainer, its last one, or a number of steps to come."""
    if any(one.words == ("train", "runtime") for one in numbers):
        return "summary"
    if told:
        of_trainer = (
            made.learning_rate is not None
            or made.grad_norm is not None
            or any(one.words == ("epoch",) for one in numbers)
        )
        return "dictionary" if of_trainer and "{" in text else ""
    return (
        "total"
        if made.total_steps and all(value is None for value in (made.learning_rate, made.throughput, made.grad_norm))
        else ""
    )


class _At(NamedTuple):
    step: int | None = None
    total: int | None = None
    form: str = ""
    needs_loss: bool = False
    epoch: int | None = None
    epochs: int | None = None
    first: int = 1


def _position(numbers: list[_Named], *, trial: bool = False) -> _At | None:
    """Find the step: `global_step` first, then the first step that is named, a batch of an epoch, what a progress bar counts, or an epoch."""
    found: dict[str, _At] = {}
    epoch, epochs, first, named = None, None, 1, ""
    for index, one in enumerate(numbers):
        if (value := _whole(parse_number(one.value))) is None:
            continue
        after = numbers[index + 1] if index + 1 < len(numbers) else None
        total = _whole(parse_number(after.value)) if after and after.mark.strip() in ("/", "of") else None
        mark = one.mark.strip()
        if one.words[-1:] == ("epoch",):
            epoch, epochs, named = value, total, one.words[-1]
        elif one.words[-2:] == ("global", "step") or one.words[-1:] == ("globalstep",):
            found.setdefault("global", _At(value, None, "step"))
        elif is_step(one.words, trial=trial):
            counted = total if total and total >= value else None
            found.setdefault("step", _At(value, counted, "step", one.words[-1].endswith("s")))
        elif mark.endswith("%||") and total:
            found.setdefault("bar", _At(value, total, "bar", needs_loss=True))
        elif total and total >= value and _counts(one.words, mark):
            found.setdefault("part", _At(value, total, "part", needs_loss=True))
            first = 0 if mark == "][" and named == "epoch" else first
        elif one.words[-1:] == ("batch",) and epoch is not None:
            found.setdefault("part", _At(value, None, "part", needs_loss=True))
        elif mark == "|" and after and after.mark.lower().startswith("|loss"):
            found.setdefault("step", _At(value, None, "step", needs_loss=True))
    if "global" in found:
        counter = found.get("step") or found.get("bar")
        return found["global"]._replace(total=counter.total if counter and not epoch else None)
    at = found.get("step") or found.get("part") or found.get("bar")
    if at is None:
        return None if epoch is None else _At(epoch, epochs, "epoch", needs_loss=True)
    if at.form == "bar" and epoch is not None and epochs is None:  # Lightning's; those that people print begin at 1
        first = 0
    return at._replace(epoch=epoch, epochs=epochs, first=first)


def _counts(words: tuple[str, ...], mark: str) -> bool:
    """Return whether `10/100` is a counter of steps, by the text before it."""
    return words[-1] in _COUNTED if words else mark[-1:] in ("", "[", "(", "]", ":", "|", "-", ",")


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 0 and value == int(value) else None
