"""Readers of what jobs write: records of a log (here), the lines of each, and why a program ended. Pure; the standard library alone, Python 3.9 or
newer, and nothing of the package outside this folder: it can run on a cluster's nodes.

Here are the records; the meaning of a number, by the words of its name and its unit (`field`); and parts that the readers of lines share.
Readers never raise, whatever the bytes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Union


class Step(NamedTuple):
    """One training step. A field is None if the line does not have it.

    Attributes:
        step: None for Hugging Face's Trainer.
        throughput: sequences per second, of all workers.
        seconds: time of one step.
        tokens_per_second: of one worker, as TorchTitan prints it, unless `unit` says something else.
        unit: of the throughput, as it is printed (`samples/s`); without a throughput, of the tokens. None: as above.
    """

    step: int | None
    loss: float | None = None
    learning_rate: float | None = None
    throughput: float | None = None
    grad_norm: float | None = None
    total_steps: int | None = None
    global_batch_size: int | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None
    unit: str | None = None


class Evaluation(NamedTuple):
    """The loss of a validation or a test.

    Attributes:
        step: of the training; None if the line does not have it.
        loss: None if it is not a finite number.
        of: `validation` or `test`.
    """

    step: int | None
    loss: float | None
    of: str = "validation"


class CompileCount(NamedTuple):
    """One line of the summary that neuron_parallel_compile prints on each node: `what` is graphs, successful or
    failed."""

    what: str
    count: int  # type: ignore[assignment]  # tuple.count is not used


class CompileError(NamedTuple):
    """A graph that failed to compile. Code -9: the host ran out of memory."""

    code: int


class CacheStatus(NamedTuple):
    """The progress of a node's compilation."""

    remaining: int
    locked: int
    failed: int
    done: int
    total: int


class Start(NamedTuple):
    """A stage begins, for the first time or again.

    Attributes:
        time: seconds since 1970.
        attempt: 0, 1, ... on Kubernetes. None on Slurm, whose log has each of them.
    """

    stage: str
    time: int
    attempt: int | None = None


@dataclass(frozen=True)
class Said:
    """Lines of a program's output that may explain its end. Each text is a line, cut to 300 characters.

    Attributes:
        raised: the exception that explains it, as `KeyError: 'x'`; then another one that may have come first; empty without any.
        at: when the first exception of the last hour was printed, in seconds since 1970; 0 without one.
        follows: the last exception that only follows from another process's; empty without one.
        rank: of the process that raised the exception, where its line tells it; else -1.
        launcher: whether a launcher has reported that a worker failed.
        code: exit code in that report, of the worker that failed first; 0 without one.
        line: the last line that is not the launcher's or Slurm's.
        lines: those that look like errors, first ones and last ones; then the last of all.
    """

    raised: tuple[str, ...] = ()
    at: float = 0.0
    follows: str = ""
    rank: int = -1
    launcher: bool = False
    code: int = 0
    line: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A problem of a job that runs. The runner writes it as a line of the log: `FOUND`, and this as JSON.

    Attributes:
        kind: `hang`, `nan`, `straggler`, `silent` (a node sends no sign), `start` (no step for very long), `budget`, `restarted`;
            of a node, as root has measured it: `device`, `disk`, `memory`, and `log` (a line of the kernel's log).
        at: since when, in seconds since 1970.
        node, rank: which one; -1: all, or that is not known.
        evidence: in one sentence.
        over: whether it is so no longer.
    """

    kind: str
    at: float
    node: int = -1
    rank: int = -1
    evidence: str = ""
    over: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Return the key of a problem among others of the same time: of a node, or of the whole training."""
        return self.kind, self.node if self.kind in _OF_NODES else -1

    @property
    def text(self) -> str:
        """Return the problem for people, with the time in UTC."""
        word = _WORDS.get(self.kind, self.kind)
        return f"{word} {time.strftime('%Y-%m-%d %H:%M', time.gmtime(self.at))} UTC: {self.evidence}"

    @property
    def line(self) -> str:
        """Return the line that the runner writes into the log."""
        return f"{FOUND}{json.dumps(asdict(self), sort_keys=True)}"


FOUND = "trn: found: "
_OF_NODES = ("straggler", "silent", "device")
_WORDS = {
    "hang": "hangs since", "nan": "has lost its loss since", "straggler": "has a straggler since", "silent": "has a silent node since",
    "start": "has not begun since", "budget": "its budget at", "restarted": "was restarted at",
    "device": "has a device error since", "disk": "has a full disk since", "memory": "has a full memory since",
    "log": "has a hardware error in a kernel's log since",
}  # fmt: skip
_YEAR_9999 = 253_402_300_799
_LONGEST_EVIDENCE = 1000


def read_finding(text: str) -> Finding | None:
    """The finding in a line; None if there is none. A job may have printed it."""
    _, mark, rest = text.partition(FOUND)
    try:
        told: Any = json.loads(rest) if mark else None
        found = Finding(
            str(told["kind"])[:20], float(told["at"]), _number(told, "node"), _number(told, "rank"), str(told["evidence"])[:_LONGEST_EVIDENCE],
            told.get("over") is True,
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
    texts = found.kind.isalpha() and found.evidence.isprintable()
    return found if texts and 0 <= found.at < _YEAR_9999 else None


def _number(told: Any, name: str) -> int:
    value = told.get(name)
    return value if type(value) is int and 0 <= value < _MOST else -1


Record = Union[Step, Evaluation, CompileCount, CompileError, CacheStatus, Start, Finding]
Reader = Callable[[str], Iterator["tuple[int, Step | Evaluation]"]]
"""Finds the steps in a line: where each begins, and what it is."""


class MarkedReader:
    """A reader of lines that contain one of some words: most lines of a log have none, and are skipped. Made by `reads`."""

    def __init__(self, marks: tuple[str, ...], read: Reader):
        self.marks, self.read = marks, read

    def __call__(self, text: str) -> Iterator[tuple[int, Step | Evaluation]]:
        return self.read(text)


def reads(*marks: str) -> Callable[[Reader], MarkedReader]:
    """Decorator of a reader: its records are only in lines with one of these words. A reader without it reads every line, which is slow."""
    return lambda read: MarkedReader(marks, read)


# the number of digits is limited: otherwise a line of digits would take minutes
NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,4})?|nan|inf|-inf|NaN"
"""A number, as a regular expression."""
COLOUR = r"\x1b\[[0-9;]{0,20}m"
"""A control sequence of a terminal, as a regular expression."""
NO_NUMBER = "not a number"
"""What is shown for a value that is nan or infinite, where a step has None."""
LONGEST_LINE = 100_000
"""Only this much of a line is read; lines of a training are shorter."""
_MOST = 1e15


def parse_number(text: str | None) -> float | None:
    """A finite number from a log; None for anything else."""
    if text is None:
        return None
    value = float(text)
    return value if -_MOST < value < _MOST else None


class Pattern:
    """A regular expression that is compiled when it is used first: a list of the kinds of jobs needs none."""

    def __init__(self, text: str):
        self._text = text

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self._text), name)
        setattr(self, name, method)
        return method


# --- names of numbers; words are small, as `split` makes them -------------------------------------------------------------------------

TRIALS = frozenset({
    "val", "valid", "validate", "validation", "validating", "eval", "evaluate", "evaluation", "evaluating", "test", "testing", "dev", "sanity",
    "predict", "predicting",
})  # fmt: skip
"""Words of a validation or a test."""
MEASURES = frozenset({
    "loss", "acc", "accuracy", "ppl", "perplexity", "err", "error", "score", "auc", "bleu", "rouge", "mse", "mae", "rmse", "bpb", "tokens",
})  # fmt: skip
"""What is measured in a validation, and may be next to the training's own numbers."""
STEP_WORDS = frozenset({"step", "steps", "iter", "iters", "iteration", "iterations"})
WORKERS = frozenset({"device", "gpu", "core", "worker", "chip", "rank"})
_NO_STEP = frozenset({
    "max", "maximum", "total", "num", "of", "warmup", "warm", "save", "saving", "log", "logging", "remaining", "per", "every", "from", "accumulation",
    "micro", "decay", "first", "checkpoint", "start", "end", "resume", "param",
})  # fmt: skip
"""Words before `step` whose number does not count steps."""
_OTHER_LOSS = frozenset({
    "best", "lowest", "min", "minimum", "max", "initial", "previous", "expected", "target", "final",
})  # fmt: skip
_OTHER_RATE = frozenset({"max", "min", "peak", "base", "initial", "target", "final", "warmup"})
_TRAINING = frozenset({"", "train", "training", "trainer"})
_SECONDS = frozenset({"s", "sec", "secs", "second", "seconds"})
_ONE = STEP_WORDS | {"it", "its", "ba", "batch", "batches"}
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
        ("total steps", "max steps", "total iters", "max iters", "total iterations", "max iterations", "training steps", "optimization steps",
         "param steps", "max step"),
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
    """Return whether a number is a step's. trial: in a line of a validation."""
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
    """Return whether a number is a loss: `train loss`, `loss/train`, `loss_step`, `loss/train/total`; not `loss scale`."""
    if "loss" not in words:
        return False
    after = words[words.index("loss") + 1 :]
    return (
        not after
        or (after[-1] == "loss")
        or all(one in _TRAINING or one in TRIALS or one in ("step", "total", "avg", "mean", "value") for one in after)
    )


def speed(words: tuple[str, ...]) -> tuple[str, str]:
    """Return the field and unit of a rate, or of a step's duration. The words are such as `tokens`, `s` or `s`, `it`. Both empty: it is neither."""
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
    """Return the rank of a loss as the training's, by its words: the smaller, the better; None if it is another loss."""
    of = tuple(word for word in words if word not in ("loss", "step"))
    if _OTHER_LOSS.intersection(of):
        return None
    if of[:1] == ("reduced",):  # NeMo's, the mean of all workers
        return -1
    return 0 if (of[-1] if of else "") in _TRAINING else 1
