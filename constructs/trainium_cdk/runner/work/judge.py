"""Judges a stage that runs, in one place: the batch script on Slurm, the pod of node 0 on Kubernetes. It reads the pulses of all nodes (`health`),
tells what is wrong, counts what the stage costs, and orders what all nodes do then. There is at most one order in a run. It is given also where a full
disk takes no record of it: no node that reads it there carries it out then, and all are ended when that is overdue.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import records, slurm_nodes
from ..prepare.checkpoints import complete
from ..readers import Finding
from ..spec import Checkpoints, JobSpec, StageSpec
from . import health
from .health import BUDGET, HANG, NAN, RESTARTED, STRAGGLER, Order, Pulse

FAULT = 66
"""Exit code of a stage that was stopped, as of a program that has failed for good (`node.FAILED`)."""
_MOST_ENTRIES = 10_000
_SURE = 3
"""Looks, one after the other, in which a straggler is one."""
_AGAIN_SECONDS = 600.0
"""After which a finding that still is so is reported again: the end of a log has it then."""
_LATE_SECONDS = 120.0
"""Within which, after the time that programs have to save, all nodes have carried out an order."""


class Judge:
    """Judges one run of a stage.

    Args:
        folder: the job's own.
        say: writes a line to the log.
        show: called with the findings that there are now, when their kinds change.
        leave_block: an order, once the job must leave its capacity block.

    Attributes:
        order: what all nodes are to do.
    """

    def __init__(
        self, folder: Path, job: JobSpec, stage: StageSpec, run: str, say: Callable[[str], None], show: Callable[[Sequence[Finding]], None] | None = None,
        leave_block: Callable[[], Order | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._folder, self._job, self._stage, self._run, self._say, self._show = folder, job, stage, run, say, show
        self._leave_block = leave_block
        self._began = self._looked = time.monotonic()
        self._told: dict[tuple[str, int], tuple[Finding, float]] = {}
        self._tried = health.tried(folder)
        self._shown, self._unwritten, self._stepped = set[str](), False, health.stepped(folder, stage.name)
        self._seen: dict[tuple[str, int], int] = {}
        self._nodes: Sequence[slurm_nodes.SlurmNode] = ()
        self.order: Order | None = None
        self._ordered = 0.0

    def look(self) -> Order | None:
        """Look, if it is time for it. It does not raise. Returns what all nodes are to do."""
        if time.monotonic() - self._looked >= self._job.health.every:
            self._looked = time.monotonic()
            with contextlib.suppress(OSError):
                self._look()
        return self.order

    @property
    def is_overdue(self) -> bool:
        """True if the nodes should have carried out the order."""
        wait = _LATE_SECONDS + 2 * self._job.health.every
        return self.order is not None and time.monotonic() - self._ordered > wait

    def _look(self) -> None:
        if self.order is not None:
            return
        found, order = self._of_budget(), None
        over = [one for one in found if order is None and self._spent() >= health.ALL]
        if over:
            order = Order(health.SAVE, over[0].evidence, time.time())
        if order is None and (order := self._leave_block()):
            self._tried = dataclasses.replace(self._tried, why=order.why, at=time.time())
        self._nodes = slurm_nodes.nodes_now(self._nodes)
        found += slurm_nodes.findings(self._nodes)
        if order is None:
            order = self.leave(self._nodes)
        if self._stage.name == "train":
            now, rules = time.time(), self._job.health
            pulses = health.pulses(self._folder, self._stage.name, self._run)
            stepped = max([self._stepped, *(one.at for one in pulses)])
            self._unwritten, self._stepped = self._unwritten or stepped > self._stepped, stepped
            wrong = health.decide(pulses, now, rules, self._tried)
            if any(one.kind == HANG for one in wrong):  # only then the folder of checkpoints is looked at
                wrong = health.decide(pulses, now, rules, self._tried, saved=self._changed())
            wrong = [self._with_checkpoint(one, pulses) for one in self._sure(wrong)]
            if order is None:
                order, self._tried = health.act(wrong, pulses, rules, self._tried)
            found += wrong
        if self._tried.why and not order:
            found.append(Finding(RESTARTED, self._tried.at, evidence=self._tried.why))
        self._tell(found)
        if order:
            self.give(dataclasses.replace(order, at=time.time()))

    def leave(self, nodes: Sequence[slurm_nodes.SlurmNode]) -> Order | None:
        """Return the order where root has taken nodes away: the job continues on others, unless its program breaks one after the other."""
        lost = [node for node in nodes if node.lost]
        if not lost:
            return None
        steps = [one.step for one in health.pulses(self._folder, self._stage.name, self._run) if one.step is not None]
        done, why = slurm_nodes.move(self._folder, lost, max(steps, default=None)), slurm_nodes.why(lost)
        if done.count < slurm_nodes.IN_A_ROW:
            self._tried = dataclasses.replace(self._tried, why=why, at=time.time())
            return Order(health.MOVE, why)
        last = "" if done.step is None else f" after step {done.step}"
        text = f"{done.count} nodes in a row had a device error{last} ({done.nodes}): its program is at fault. It was {why}"
        return Order(health.STOP, text)

    # --- what is told -------------------------------------------------------------------------------------------------------------------

    def _tell(self, found: list[Finding]) -> None:
        """Tell what is new, what still is so after a while, and what is over."""
        now = time.monotonic()
        current = {one.key: one for one in found}
        changed = current.keys() != self._told.keys()
        for key, one in current.items():
            before, at = self._told.get(key, (one, 0.0))
            other = one.kind in slurm_nodes.ALIKE and one.evidence != before.evidence
            if key not in self._told or other or now - at > _AGAIN_SECONDS:
                self._say(one.line)
                self._told[key], changed = (one, now), True
        for key in [key for key in self._told if key not in current]:
            over, _ = self._told.pop(key)
            self._say(dataclasses.replace(over, over=True).line)
        self._unwritten = self._unwritten or changed
        if self._unwritten:
            with contextlib.suppress(OSError):
                health.write_found(self._folder, self._stage.name, list(current.values()), self._stepped)
                self._unwritten = False
        now_wrong = {one.kind for one in found}
        if self._show and now_wrong != self._shown:
            self._shown = now_wrong
            self._show(found)

    def _sure(self, found: Sequence[Finding]) -> list[Finding]:
        """Remove nodes that have only looked at another moment than the others."""
        self._seen = {one.key: self._seen.get(one.key, 0) + 1 for one in found}
        return [one for one in found if one.kind != STRAGGLER or self._seen[one.key] >= _SURE]

    def _with_checkpoint(self, one: Finding, pulses: Sequence[Pulse]) -> Finding:
        """Add the checkpoint from before to the finding of a loss that is not a number."""
        if one.kind != NAN or not (self._job.checkpoints and self._job.checkpoints.pattern):
            return one
        before = self._checkpoint(one.at, next((p.nan_step for p in pulses if p.node == one.node and p.nans), None))
        told = (
            f"The newest checkpoint from before is {before}"
            if before
            else "There is no complete checkpoint from before"
        )
        return dataclasses.replace(one, evidence=f"{one.evidence}. {told}")

    def _checkpoint(self, at: float, step: int | None) -> Path | None:
        """The newest complete one that was written before this time, and whose number is less than this step's."""
        made = self._job.checkpoints
        with contextlib.suppress(OSError):
            for one in complete(made, self._place(made)) if made else ():
                number = re.findall(r"\d+", one.name)[-1:]
                if _newest_change(one) < at and (step is None or not number or int(number[0]) < step):
                    return one
        return None

    def _changed(self) -> float:
        """Return the time of the last change in the folder of checkpoints; 0 without one."""
        made = self._job.checkpoints
        return _newest_change(self._folder / made.folder) if made else 0.0

    def _place(self, made: Checkpoints) -> Path:
        return self._folder / made.folder / made.place

    # --- what is ordered ----------------------------------------------------------------------------------------------------------------

    def give(self, order: Order) -> None:
        """Give an order: all nodes find it at their next look. A run that ends as a failure has its reason first."""
        if order.do == health.RESTART:
            why = f"restart {self._tried.restarts} of at most {health.RESTARTS} without a new step: {order.why}"
            self._tried = dataclasses.replace(self._tried, why=why, at=order.at)
            self._say(Finding(RESTARTED, order.at, evidence=why).line)
        self._remember()
        if order.do not in (health.RESTART, health.MOVE):
            records.fail(self._folder, self._stage.name, self._run, records.Failure(-1, FAULT, order.why, order.at))
        with contextlib.suppress(OSError):
            health.write_order(self._folder, self._stage.name, self._run, order)
        self.order, self._ordered = order, time.monotonic()

    def _remember(self) -> None:
        with contextlib.suppress(OSError):
            health.write_tried(self._folder, self._tried)

    # --- what it costs ------------------------------------------------------------------------------------------------------------------

    def _spent(self) -> float:
        """The part of the budget that is used."""
        return self._tried.spent / self._job.budget.seconds if self._job.budget else 0.0

    def _of_budget(self) -> list[Finding]:
        """Count what this run takes, and tell it where that is most of the budget."""
        if self._job.budget is None:
            return []
        took = (time.monotonic() - self._began) * self._stage.nodes
        self._tried = self._tried.took(f"{self._stage.name}.{self._run}", took)
        self._remember()
        if self._spent() < health.TOLD:
            return []
        usd = self._job.budget.usd
        text = f"its nodes have cost {min(1.0, self._spent()) * usd:,.2f} of at most {usd:,.2f} USD (--max-usd)"
        stops = ": it saves and stops" if self._spent() >= health.ALL else ""
        return [Finding(BUDGET, time.time(), evidence=f"{text}{stops}")]


def _newest_change(place: Path) -> float:
    """Return the time of the last change of a file, or of anything in a folder; 0 if it is not there."""
    newest = 0.0
    with contextlib.suppress(OSError):
        newest = place.lstat().st_mtime
    for count, (folder, _, names) in enumerate(os.walk(place)):
        for name in names:
            with contextlib.suppress(OSError):
                newest = max(newest, Path(folder, name).lstat().st_mtime)
        if count >= _MOST_ENTRIES:
            break
    return newest


__all__ = ["FAULT", "Judge"]
