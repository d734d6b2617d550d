"""Submissions that cannot work: each is refused with the value and the fix, before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.jobs import BertLarge, Gpt, JobError, LlamaNxd, Script, SlurmBackend, SubmitError, TransportError
from trainium_cdk.jobs.slurm.submit_script import LATER, RESULT
from trainium_cdk.jobs.slurm.transport import Result
from trainium_cdk.jobs.values import seconds
from trainium_cdk.outputs import SlurmCluster


class Sent(Exception):
    """Something was sent."""


class Silent:
    """A transport over which nothing may go."""

    interval = 0.0

    def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:
        raise Sent(script)


TUTORIAL = make_cluster()
SMALL = make_cluster(fleet("trn1.2xlarge", 4))
LARGE = make_cluster(fleet(nodes=256))
SDK_2_28 = make_cluster(neuron_release="2.28.1")
TRN2 = make_cluster(fleet("trn2.48xlarge", 4))
MIXED = make_cluster(fleet(nodes=2, resource="a"), fleet("trn2.48xlarge", 4, resource="b"))
HELLO = {"filename": "hello.sh", "content": b"echo hello\n"}

CASES: list[tuple[str, SlurmCluster, Callable[[], Any], str]] = [
    ("Windows line ends", TUTORIAL, lambda: Script(filename="a.sh", content=b"#!/bin/bash\r\necho\r\n"), "a.sh has Windows line ends.*Convert it: sed -i 's/.r[$]//' a.sh"),
    ("a byte order mark", TUTORIAL, lambda: Script(filename="a.sh", content=b"\xef\xbb\xbf#!/bin/bash\necho\n"), "a.sh begins with a byte order mark"),
    ("a program", TUTORIAL, lambda: Script(filename="a.out", content=b"\x7fELF\0\0"), "a.out is not text. Submit a script that starts the program"),
    ("3 nodes", TUTORIAL, lambda: BertLarge(nodes=3), "128 does not divide by 3.*Use 1, 2, 4, 8 or 16 nodes, or --scaling weak .global batch size 196608"),
    ("more nodes than steps", LARGE, lambda: BertLarge(nodes=64, optimizer="adamw"), "nodes is 64: .*32 gradient accumulation.*less than one is left.*1, 2, 4, 8, 16 or 32 nodes"),
    ("LAMB beyond 128", LARGE, lambda: BertLarge(nodes=256, accumulation=256), "nodes is 256: .*up to 128 nodes.*--scaling weak"),
    ("more than the fleet", TUTORIAL, lambda: BertLarge(nodes=32), "nodes is 32, but queue compute1 has at most 16 of trn1.32xlarge.*max_nodes of compute resource trn"),
    ("several without EFA", SMALL, lambda: BertLarge(nodes=2), "trn1.2xlarge in queue compute1 has no EFA.*--nodes 1"),
    ("a script without EFA", SMALL, lambda: Script(nodes=2, **HELLO), "has no EFA"),
    ("no such queue", TUTORIAL, lambda: BertLarge(queue="gpu"), "no queue 'gpu'; it has compute1.*--queue"),
    ("no such type", TUTORIAL, lambda: BertLarge(instance_type="trn2.48xlarge"), "has no trn2.48xlarge; it has trn1.32xlarge"),
    ("type too small", MIXED, lambda: BertLarge(nodes=4, instance_type="trn1.32xlarge"), "at most 2 of trn1.32xlarge"),
    ("framework none", make_cluster(framework="none"), lambda: BertLarge(), "bert-large needs framework torch-xla, .*have none.*framework: torch-xla"),
    ("framework native", make_cluster(framework="torch-native"), lambda: Gpt(), "gpt-6.7b needs framework torch-xla, .*have torch-native"),
    ("precompile without a framework", make_cluster(framework="none"), lambda: Script(precompile=True, **HELLO), "precompiling needs torch-xla"),
    ("another family", TRN2, lambda: Gpt(), "gpt-6.7b runs on trn1, trn1n, but queue compute1 has trn2.48xlarge.*trn kinds"),
    ("a newer SDK", make_cluster(neuron_release="2.30.0"), lambda: Gpt(), "gpt-6.7b runs with Neuron SDK releases from 2.28.0 on and before 2.29.0, but .* has 2.30.0"),
    ("Llama without data", SDK_2_28, lambda: LlamaNxd(), "data is not given: .*get_dataset.py.*--data"),
    ("Llama on one device", make_cluster(fleet("trn1.2xlarge", 4), neuron_release="2.28.1"), lambda: LlamaNxd(data="/efs/x"), "over 32 NeuronCores, but trn1.2xlarge has 2"),
    ("too much tensor parallelism", make_cluster(fleet("trn1.2xlarge", 4), neuron_release="2.28.1"), lambda: Gpt(), "tensor_parallel is 8; .*2 NeuronCores of trn1.2xlarge.*--tensor-parallel 1 or 2"),
    ("heads do not divide", SDK_2_28, lambda: Gpt(tensor_parallel=12), "tensor_parallel is 12; .*32 heads.*1, 2, 4, 8, 16 or 32"),
    ("batch does not divide", SDK_2_28, lambda: Gpt(nodes=3), "nodes is 3: global batch size 1024 does not divide by 12.*1, 2, 4, 8 or 16 nodes, or another --global-batch-size"),
    ("a path that Hydra cannot take", SDK_2_28, lambda: Gpt(data="/efs/my corpus"), "data is '/efs/my corpus': .*Use another directory"),
    ("phase 2 from nothing", TUTORIAL, lambda: BertLarge(phase=2), "phase 2 starts from a checkpoint.*--checkpoint"),
    ("phase 1 from something", TUTORIAL, lambda: BertLarge(checkpoint="bert-large-x"), "phase 1 starts without a checkpoint"),
    ("checkpoint by another name", TUTORIAL, lambda: BertLarge(phase=2, checkpoint="/efs/model.pt"), "checkpoint is '/efs/model.pt': not in the right format.*ckpt_7032.pt"),
    ("phase 3", TUTORIAL, lambda: BertLarge(phase=3), "phase is 3: input should be 1 or 2"),
    ("only warm-up", TUTORIAL, lambda: BertLarge(warmup_steps=99_999, steps=10), "warmup_steps is 99999, but the whole training has 10 steps. Give fewer warm-up steps, or more steps"),
    ("warm-up to the default end", TUTORIAL, lambda: BertLarge(warmup_steps=7032), "warmup_steps is 7032, but the whole training has 7032 steps"),
    ("Llama that only warms up", SDK_2_28, lambda: LlamaNxd(data="/efs/x", warmup_steps=10, steps=10), "warmup_steps is 10, but the whole training has 10 steps"),
    ("a name that ends with a hyphen", TUTORIAL, lambda: BertLarge(name="a-"), "name is 'a-': not in the right format. Write small letters, .*, with a letter or digit as the first and the last"),
    ("a name that begins with a hyphen", TUTORIAL, lambda: BertLarge(name="-lead"), "name is '-lead': .*letter or digit as the first and the last"),
    ("a cache that begins with a dot", TUTORIAL, lambda: BertLarge(cache=".x"), "cache is '.x': .*letter or digit as the first"),
    ("a script like an option", TUTORIAL, lambda: Script(filename="-dash.sh", content=b"true"), "^the script's filename is '-dash.sh': not in the right format. Rename the file, or copy it, .*a letter, a digit or _ as the first"),
    ("a script with a space", TUTORIAL, lambda: Script(filename="my script.sh", content=b"true"), "^the script's filename is 'my script.sh': not in the right format. Rename the file, or copy it"),
    ("sgd", TUTORIAL, lambda: BertLarge(optimizer="sgd"), "optimizer is 'sgd': input should be 'lamb' or 'adamw'"),
    ("restarts below none", TUTORIAL, lambda: BertLarge(restarts=-1), "restarts is -1: input should be greater than or equal to 0"),
    ("no nodes", TUTORIAL, lambda: BertLarge(nodes=0), "nodes is 0: input should be greater than or equal to 1"),
    ("half a node", TUTORIAL, lambda: BertLarge(nodes=1.5), "nodes is 1.5: .*integer"),
    ("learning rate", TUTORIAL, lambda: BertLarge(learning_rate=6), "learning_rate is 6: input should be less than 1"),
    ("an unknown option", TUTORIAL, lambda: BertLarge(tensor_parallel=8), "a BertLarge job has no tensor_parallel. Remove it"),
    ("a name of the shell", TUTORIAL, lambda: BertLarge(name="$(reboot)"), r"name is '\$\(reboot\)': not in the right format. Write small letters"),
    ("a queue of the shell", TUTORIAL, lambda: BertLarge(queue="a;b"), "queue is 'a;b': not in the right format"),
    ("a name with a line end", TUTORIAL, lambda: BertLarge(name="a\n#SBATCH --uid=0"), "name is .*not in the right format"),
    ("time in words", TUTORIAL, lambda: BertLarge(time_limit="2 days"), "time_limit is '2 days': not in the right format. Write minutes"),
    ("no time", TUTORIAL, lambda: BertLarge(time_limit="0"), "time_limit is '0': it must be at least 1 minute and at most 365 days. Write minutes, or HH:MM:SS"),
    ("no time in hours", TUTORIAL, lambda: BertLarge(time_limit="00:00:00"), "time_limit is '00:00:00': it must be at least 1 minute"),
    ("less than a minute", TUTORIAL, lambda: BertLarge(time_limit="0:59"), "time_limit is '0:59': it must be at least 1 minute"),
    ("two centuries", TUTORIAL, lambda: BertLarge(time_limit="99999-00:00:00"), "time_limit is '99999-00:00:00': .* at most 365 days"),
    ("a year and a second", TUTORIAL, lambda: BertLarge(time_limit="365-00:00:01"), "time_limit is '365-00:00:01': .* at most 365 days"),
    ("99 minutes after hours", TUTORIAL, lambda: BertLarge(time_limit="0:99:59"), "time_limit is '0:99:59': minutes and seconds after a colon are at most 59"),
    ("99 seconds after minutes", TUTORIAL, lambda: BertLarge(time_limit="1:99"), "time_limit is '1:99': minutes and seconds after a colon"),
    ("data over http", TUTORIAL, lambda: BertLarge(data="https://x/y"), "data is 'https://x/y': not in the right format.*s3://"),
    ("relative data", TUTORIAL, lambda: BertLarge(data="data"), "data is 'data': not in the right format"),
    ("environment of Slurm", TUTORIAL, lambda: BertLarge(env={"SLURM_NTASKS": "1"}), "env SLURM_NTASKS: .*Slurm's own"),
    ("an odd variable", TUTORIAL, lambda: BertLarge(env={"A B": "1"}), "env is .*A B.*NAME=VALUE|env.*not in the right format"),
    ("NUL in the environment", TUTORIAL, lambda: BertLarge(env={"A": "x\0y"}), "env A contains a NUL byte"),
    ("NUL in an argument", TUTORIAL, lambda: Script(args=("a\0b",), **HELLO), "NUL byte"),
    ("half a character", TUTORIAL, lambda: Script(args=("\udc80",), **HELLO), "not UTF-8 text"),
    ("an empty script", TUTORIAL, lambda: Script(filename="x.sh", content=b" \n"), "the script x.sh is empty"),
    ("a script elsewhere", TUTORIAL, lambda: Script(filename="../x.sh", content=b"true"), "filename is '../x.sh'"),
    ("no such script", TUTORIAL, lambda: Script.from_file("/no/such.sh"), "cannot read the script /no/such.sh: No such file"),
    ("a folder", TUTORIAL, lambda: Script.from_file("/"), "/ is not a file"),
]  # fmt: skip


@pytest.mark.parametrize(("cluster", "job", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_is_refused(cluster: SlurmCluster, job: Callable[[], Any], message: str) -> None:
    with pytest.raises(JobError, match=message) as error:
        SlurmBackend(cluster, Silent()).submit(job(), "token")
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 600
    assert text[-1] != "."  # the command ends it, with what it adds


@pytest.mark.parametrize("token", ["", "A", "a b", "-a", "a" * 41, "ä", "a\n"])
def test_invalid_tokens(token: str) -> None:
    backend = SlurmBackend(TUTORIAL, Silent())
    with pytest.raises(
        JobError,
        match=r"token is .*Use small letters, digits and hyphens, at most 40, with a letter or digit as the first",
    ):
        backend.submit(BertLarge(), token)


def test_a_short_trial_may_leave_the_default_warm_up() -> None:
    assert LlamaNxd(steps=10).warmup_steps == 100
    assert BertLarge(steps=10, run_steps=5).steps == 10
    assert BertLarge(warmup_steps=9, steps=10).warmup_steps == 9


@pytest.mark.parametrize(
    ("field", "least"), [("warmup_steps", 0), ("steps", 1), ("checkpoint_interval", 1), ("global_batch_size", 1)]
)
def test_counts_have_a_smallest_value(field: str, least: int) -> None:
    assert getattr(LlamaNxd(**{field: least}), field) == least
    with pytest.raises(JobError, match=field):
        LlamaNxd(**{field: least - 1})


@pytest.mark.parametrize(
    ("code", "error"), [(128, SubmitError), (129, TransportError), (-9, TransportError), (LATER, TransportError)]
)
def test_a_submission_that_was_killed_is_not_a_refusal(code: int, error: type[Exception]) -> None:
    class Killed(Silent):
        def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:
            return Result("", "ended", code)

    with pytest.raises(error) as caught:
        SlurmBackend(TUTORIAL, Killed(), sleep=lambda _: None).submit(BertLarge(), "token")
    assert ("Submit it again with token token" in str(caught.value)) is (error is TransportError)


def test_the_last_line_of_a_submission_is_its_answer() -> None:
    """A login message, or a profile, may print what looks like one."""
    forged, answer = ({"existing": number == "6", "stages": {"train": number}} for number in "67")

    class Accepts(Silent):
        def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:
            return Result(f"Welcome\n{RESULT}{json.dumps(forged)}\n{RESULT}{json.dumps(answer)}\n", "", 0)

    sent = SlurmBackend(TUTORIAL, Accepts()).submit(BertLarge(), "token")
    assert (sent.existing, dict(sent.stages)) == (False, {"train": "7"})


def test_without_a_token_a_new_one_is_made() -> None:
    with pytest.raises(Sent):
        SlurmBackend(TUTORIAL, Silent()).submit(BertLarge(), None)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("1", 60), ("525600", 31_536_000), ("1:30", 90), ("90:00", 5400), ("100:00:00", 360_000), ("1-12", 129_600), ("1-00:30", 88_200), ("365-00:00:00", 31_536_000)],
)  # fmt: skip
def test_time_limits_are_read_as_slurm_reads_them(limit: str, expected: int) -> None:
    """sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds."""
    job = BertLarge(time_limit=limit)
    assert job.time_limit == limit
    assert seconds(limit) == expected


def test_a_script_too_large(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(5_000_001))
    with pytest.raises(JobError, match="5,000,001 bytes; a script may have at most 5,000,000"):
        Script.from_file(file)
