"""What a run has done and spent: a file in its folder, so that the same command goes on where it was stopped."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trainium_cdk.errors import TrnError
from trainium_cdk.operations.verify.plan import Plan, Rate

End = Literal["passed", "failed", "not run"]
_FILE = "run.json"


@dataclass
class Done:
    """How a step ended.

    Attributes:
        seconds: that it took.
        reason: in words, for the person who runs it; it is on no page.
        facts: what was seen, by the names of `page.FACTS`.
        predictions: what of that was predicted.
    """

    end: End
    seconds: float = 0.0
    reason: str = ""
    facts: dict[str, float] = field(default_factory=dict)
    predictions: dict[str, float] = field(default_factory=dict)


@dataclass
class Run:
    """One verification.

    Attributes:
        id: twelve hexadecimal digits: the token of its jobs, and the mark of its guard in the account.
        began: seconds since 1970.
        charged: (since when, at which rate): each until the next one begins.
        done: the steps that have ended.
        guard: when AWS itself deletes the stack, in seconds since 1970; 0 without a guard.
        notes: what a step leaves for a later one, such as the id of a job.
        stopped: whether it was asked to end: only the removal is left.
        removed: whether nothing of it is in the account any more.
    """

    id: str
    plan: Plan
    max_usd: float
    began: float
    charged: list[tuple[float, Rate]] = field(default_factory=list)
    done: dict[str, Done] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    guard: float = 0.0
    stopped: bool = False
    removed: bool = False

    @property
    def rate(self) -> Rate:
        """What is charged now."""
        return self.charged[-1][1] if self.charged else "nothing"

    def charge(self, rate: Rate, now: float) -> None:
        """From now on this rate is charged."""
        if rate != self.rate:
            self.charged.append((now, rate))

    def spent(self, now: float) -> float:
        """USD until now, as of the price list and the clock. What a dead program did not see counts, too."""
        if not self.charged:
            return 0.0
        ends = [*(since for since, _ in self.charged[1:]), now]
        hours = (
            self.plan.price(rate, max(0.0, end - since)) for (since, rate), end in zip(self.charged, ends, strict=True)
        )
        return self.plan.data + sum(hours)

    def save(self, folder: Path) -> None:
        part = folder / f"{_FILE}.part"
        part.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        part.replace(folder / _FILE)


def load(folder: Path) -> Run | None:
    """The run of a folder; None where none was begun.

    Raises:
        TrnError: the file is not one of this version.
    """
    file = folder / _FILE
    try:
        data: dict[str, Any] = json.loads(file.read_text("utf-8"))
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.pop("plan").items()}
        plan = Plan(**given)
        charged = [(float(since), rate) for since, rate in data.pop("charged")]
        done = {name: Done(**one) for name, one in data.pop("done").items()}
        return Run(plan=plan, charged=charged, done=done, **data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise TrnError(
            f"{file} is no record of a verification: {e}. Give another --folder; what is in the account: trn clusters"
        ) from None


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Only one program at once works in a folder.

    Raises:
        TrnError: another one does, or the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as e:
        raise TrnError(f"cannot write into {folder}: {e.strerror}. Give another --folder") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise TrnError(f"another `trn verify` works in {folder}: wait for its end, or stop it with Ctrl-C") from None
    finally:
        os.close(lock)
