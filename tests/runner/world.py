"""What the runner finds on a head node, from lines of text: what Slurm's programs print, and the records of one job.

queue 7|RUNNING|None|n1|START|END            a row of squeue of this user; then its name and comment, if they are not those of job j-1
task 8|0|RUNNING|None|n1|START|END           of a member of an array
sacct 7|FAILED|1:0|n1|START|END              a row of sacct, as above
active alice|compute1|2|7|RUNNING|None|n1|START|END|NAME|COMMENT         a row of any user, with its queue and nodes
down QUEUE|SINCE|NODES|REASON                of sinfo; `block ID|NODES`: of scontrol
job j-1                                      a job; the lines after it are of its records
stage train 8                                its number
shown {...}                                  what it shows of itself
state train ended 8 143 1700000000 n1 WHY    what a stage has written; `member 3 ...`: a member; WHY: a word, or the node that failed first
cluster ID, cancelled, gone 3, array 0-3, sweep {...}      records
free 0                                       no block of its file system is free
"""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import re
from pathlib import Path

import pytest

from trainium_cdk.runner import files, records, slurm
from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.requests import Cluster

STAGES = {"7": "prepare", "8": "train"}
ME = pwd.getpwuid(os.getuid()).pw_name
SHOWN = {
    "kind": "bert-large",
    "queue": "compute1",
    "prepare_queue": "compute1",
    "instance_type": "trn1.32xlarge",
    "nodes": 2,
}
CLUSTER = Cluster("/efs", "trn", "i-0123456789abcdef0", "trn-slurm", "TrnPclusterStack", "us-east-1", "cpu")


class World:
    """A head node on which Slurm's programs print what is told. `calls`: the programs that were called."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch):
        self.rows: list[dict[str, str]] = []
        self.accounts: list[str] = []
        self.down: list[str] = []
        self.reservations: list[str] = []
        self.nodes = ""
        self.calls: list[tuple[str, ...]] = []
        self.full = False
        monkeypatch.setenv("TRN_SHARED_ROOT", str(place))
        monkeypatch.setattr(slurm, "run", self.run)
        free = os.statvfs
        monkeypatch.setattr(os, "statvfs", lambda path: _Full() if self.full else free(path))
        self.jobs = place / "efs/trn/jobs"
        self.jobs.mkdir(parents=True)

    def tell(self, text: str) -> World:
        job, numbers = self.jobs / "j-1", dict[str, str]()
        for line in text.splitlines():
            key, _, rest = line.partition(" ")
            if key == "job":
                job, numbers = self.jobs / rest, {}
                (job / "state").mkdir(parents=True)
                files.write_json(job / "job.json", {"shown": SHOWN})
                self._submitted(job, numbers)
            elif key == "stage":
                numbers.update([rest.split(" ")])
                self._submitted(job, numbers)
            elif key == "cluster":
                self._submitted(job, numbers, cluster=rest)
            elif key == "shown":
                files.write_json(job / "job.json", {"shown": json.loads(rest)})
            elif key == "array":
                files.write_json(job / "job.json", {"shown": SHOWN, "array": rest})
            elif key == "sweep":
                record = json.loads((job / "job.json").read_text())
                files.write_json(job / "job.json", {**record, "sweep": json.loads(rest)})
            elif key == "state":
                stage, _, state = rest.partition(" ")
                records.write_state(job, stage, _state(state))
            elif key == "member":
                index, _, state = rest.partition(" ")
                (job / index / "state").mkdir(parents=True)
                records.write_state(job / index, "train", _state(state))
            elif key in ("cancelled", "gone"):
                (job / rest).mkdir(exist_ok=True)
                (job / rest / "cancelled").touch()
            elif key == "free":
                self.full = rest == "0"
            else:
                self._slurm(key, rest)
        return self

    def run(self, *words: str, text: str | None = None) -> str:
        self.calls.append(words)
        if words[0] == "squeue":
            return self._squeue(words)
        if words[0] == "sacct":
            return "".join(line.replace("|", "\x1f") + "\n" for line in self.accounts)
        if words[0] == "sinfo":
            return "".join(line.replace("|", "\x1f") + "\n" for line in self.down)
        if words[:4] == ("scontrol", "-o", "show", "reservation"):
            return "".join(self.reservations)
        if words[:4] == ("scontrol", "-o", "show", "node"):
            return self.nodes
        return ""

    def _squeue(self, words: tuple[str, ...]) -> str:
        form = words[words.index("-o") + 1]
        options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
        numbers, names = options.get("--jobs", ""), options.get("--name", "")
        rows = [
            row
            for row in self.rows
            if (not numbers or row["F"] in numbers.split(","))
            and (not names or row["j"] in names.split(","))
            and ("--user" not in options or row["U"] == options["--user"])
            and ("all" in words or row["T"] in ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED"))
        ]
        if numbers and not rows and "," not in numbers:
            raise Refused("slurm_load_jobs error: Invalid job id specified")
        return "".join(re.sub("%([a-zA-Z])", lambda found, row=row: row[found[1]], form) + "\n" for row in rows)

    def _slurm(self, key: str, rest: str) -> None:
        if key == "queue":
            number, state, reason, nodes, start, end, *named = rest.split("|", 7)
            name, comment = named or (f"j-1:{STAGES.get(number, 'x')}", "trn:j-1")
            self._row(number, "N/A", state, reason, nodes, start, end, name, comment)
        elif key == "task":
            number, index, state, reason, nodes, start, end, *named = rest.split("|", 8)
            name, comment = named or ("j-1:train", "trn:j-1")
            self._row(number, index, state, reason, nodes, start, end, name, comment)
        elif key == "active":
            user, queue, count, number, *row = rest.split("|", 10)
            self._row(number, "N/A", *row, user=user, queue=queue, count=count)
        elif key == "sacct":
            number = rest.partition("|")[0]
            self.accounts.append(rest + ("" if rest.count("|") > 5 else f"|j-1:{STAGES.get(number, 'x')}"))
        elif key == "down":
            self.down.append(rest)
        elif key == "block":
            id, _, nodes = rest.partition("|")
            self.reservations.append(f"ReservationName=pcluster-{id} StartTime=x EndTime=y Nodes={nodes} NodeCnt=1\n")
        else:
            raise ValueError(f"no line of a world: {key} {rest}")

    def _row(
        self, number: str, index: str, *row: str, user: str = ME, queue: str = "compute1", count: str = "2"
    ) -> None:
        uid = str(os.getuid() if user == ME else 4000 + len(user))
        label = number if index == "N/A" else f"{number}_{index}"
        keys = "U u P D F K T r N S e j k i V"
        values = (uid, user, queue, count, number, index, *row, label, "2026-11-20T09:00:00")
        self.rows.append(dict(zip(keys.split(), values, strict=True)))

    @staticmethod
    def _submitted(job: Path, numbers: dict[str, str], cluster: str = CLUSTER.identity) -> None:
        record = records.SubmittedRecord(numbers, "d", cluster, 1700000000.0)
        files.write_json(job / "submitted.json", dataclasses.asdict(record))


class _Full:
    f_bavail = 0


def _state(text: str) -> records.State:
    how, number, code, at, nodes, *why = text.split(" ")
    word = why[0] if why else ""
    node = int(word) if word.isdigit() else None
    ended = int(code) if how == "ended" else None
    return records.State(how, number, 0, ended, float(at), nodes, "" if node is not None else word, node)
