"""Going on from another job's checkpoints: what `prepare` copies, for what each kind writes, and what it refuses."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runner.preparing import Cluster
from tests.runner.test_checkpoints import NXD, TITAN, TORCH, TRAINER, torch_file
from trainium_cdk.runner.spec import Checkpoints, PrepareStep

SCRIPT = Checkpoints("checkpoints")
THERE = "trn: everything is already fetched\n"


def write(file: Path, content: str = "content") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def bert(folder: Path) -> str:
    for step in (9, 10, 100):
        torch_file(folder / f"ckpt_{step}.pt", whole=step != 100)
    write(folder / "results.json")
    return "ckpt_10.pt"


def gpt(folder: Path) -> str:
    """Three, of which the last was not written to its end."""
    names = [f"megatron_gpt--step={n}-consumed_samples={n * 1024.0}.ckpt" for n in (800, 1000, 1200)]
    for number, name in enumerate(names):
        for rank in range(20):
            write(folder / name / f"optim/dp_rank_{rank:02}_tp_rank_00_pp_rank_00.pt", name)
        if number < 2:
            write(folder / name / "done", "1")
    return names[1]


def titan(folder: Path) -> str:
    for step in (9, 10, 100):
        write(folder / f"step-{step}/__0_0.distcp", str(step))
        write(folder / f"step-{step}/.metadata", "" if step == 100 else "x")
    return "step-10"


def trainer(folder: Path) -> str:
    for step in (9, 10, 100):
        write(folder / f"checkpoint-{step}/trainer_state.json", "" if step == 100 else "{}")
        write(folder / f"checkpoint-{step}/pytorch_model_fsdp_0/__0_0.distcp", str(step))
    return "checkpoint-10"


MADE: dict[str, tuple[Checkpoints, Callable[[Path], str]]] = {
    "bert-large": (TORCH, bert),
    "gpt-6.7b": (NXD, gpt),
    "torchtitan": (TITAN, titan),
    "finetune": (TRAINER, trainer),
}


def going_on(made: Checkpoints, source: str, **same: str) -> Checkpoints:
    return replace(made, source=source, same=same)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.parametrize("source", ["/efs/run7/", "earlier-1"])
@pytest.mark.parametrize("kind", MADE)
def test_the_newest_complete_one_is_copied_once(kind: str, source: str, cluster: Cluster) -> None:
    made, write_them = MADE[kind]
    place = f"{made.folder}/{made.place}".strip("/")
    by_path = source.startswith("/")
    earlier = cluster.root / "efs/run7" if by_path else cluster.folder(source) / made.folder
    there = earlier if by_path else cluster.folder(source) / place
    newest = write_them(there)
    before = content(earlier)
    folder = cluster.write(kind=kind, checkpoints=going_on(made, source))
    assert cluster.prepare(folder, "check")[0] == 3
    code, output = cluster.prepare(folder)
    assert code == 0, output
    copied = folder / place / newest
    assert [file.name for file in (folder / place).iterdir()] == [newest]
    of = there / newest
    assert content(copied) == content(of) if of.is_dir() else copied.read_bytes() == of.read_bytes()
    assert content(earlier) == before
    assert not (folder / "resumed.part").exists()
    # what the job has written since is not lost, and nothing is copied again, also not where the first ones are gone
    write(folder / place / "later", "newer")
    for file in sorted(earlier.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    assert [cluster.prepare(folder, mode) for mode in ("check", "fetch")] == [(0, ""), (0, THERE)]
    assert (folder / place / "later").read_text() == "newer"


def test_a_folder_may_be_a_link(cluster: Cluster) -> None:
    newest = trainer(cluster.root / "efs/elsewhere")
    (cluster.root / "efs/run7").symlink_to("elsewhere")
    folder = cluster.write(kind="finetune", checkpoints=going_on(TRAINER, "/efs/run7"))
    assert cluster.prepare(folder)[0] == 0
    assert [file.name for file in (folder / "output").iterdir()] == [newest]


def test_an_interrupted_copy_begins_again(cluster: Cluster) -> None:
    newest = bert(cluster.root / "efs/run7")
    folder = cluster.write(kind="bert-large", checkpoints=going_on(TORCH, "/efs/run7"))
    write(folder / "resumed.part/copied", "half of it")
    assert cluster.prepare(folder)[0] == 0
    assert (folder / "output" / newest).read_bytes() == (cluster.root / "efs/run7" / newest).read_bytes()


def test_a_script_gets_all_and_each_member_of_an_array_its_own(cluster: Cluster) -> None:
    source = cluster.root / "efs/run7"
    write(source / "a/1.pt", "one")
    (source / "latest").symlink_to("a/1.pt")
    folder = cluster.write(checkpoints=going_on(SCRIPT, "/efs/run7"), array="0,3%1")
    code, output = cluster.prepare(folder)
    assert code == 0, output
    for member in ("0", "3"):
        copied = folder / member / "checkpoints"
        assert (copied / "latest").readlink() == Path("a/1.pt")
        (copied / "latest").write_text("two")
    assert content(source) == {"a/1.pt": b"one", "latest": b"one"}


def test_a_job_that_still_writes(cluster: Cluster) -> None:
    """It renames what it has finished, and deletes older ones: at such a moment the copy ends, and a second attempt begins again."""
    source, over = cluster.folder("earlier-1"), threading.Event()
    write(source / "job.json", '{"kind": "script"}')
    write(source / "checkpoints/1/_METADATA")

    def works() -> None:
        while not over.is_set():
            for number in range(300):
                write(source / f"checkpoints/2/d/{number}")
                write(source / f"checkpoints/3.orbax-checkpoint-tmp/d/{number}")
            shutil.rmtree(source / "checkpoints/2")
            shutil.rmtree(source / "checkpoints/3.orbax-checkpoint-tmp")

    folder = cluster.write(checkpoints=going_on(SCRIPT, "earlier-1"))
    with ThreadPoolExecutor() as pool:
        pool.submit(works)
        try:
            for _ in range(50):
                code, output = cluster.prepare(folder)
                if code:
                    break
                assert not [*folder.rglob("3.*")]
                shutil.rmtree(folder / "checkpoints")
                (folder / "state/resumed").unlink()
        finally:
            over.set()
    assert (code, output.splitlines()[-1]) == (
        75,
        "trn: earlier-1 was changed while it was copied. Submit the job again",
    )
    assert cluster.prepare(folder)[0] == 0
    assert content(folder / "checkpoints") == {"1/_METADATA": b"content"}


def test_of_a_member_of_an_array(cluster: Cluster) -> None:
    trainer(cluster.folder("many-1") / "3/output")
    folder = cluster.write(kind="finetune", checkpoints=going_on(TRAINER, "many-1/3"))
    assert cluster.prepare(folder)[0] == 0
    assert (folder / "output/checkpoint-10/trainer_state.json").exists()


@pytest.mark.parametrize(
    ("kind", "same", "had", "message"),
    [
        ("bert-large", {"kind": "bert-large"}, "kind gpt-6.7b\nworkers 32", "/efs/run7 has checkpoints of gpt-6.7b, not of bert-large. Submit the same"),
        ("bert-large", {"kind": "bert-large", "phase": "1"}, "kind bert-large\nphase 2\noptimizer lamb", "a job with phase 2, and this job has phase 1, with which"),
        ("gpt-6.7b", {"workers": "32"}, "kind gpt-6.7b\nworkers 64", "a job with workers 64, and this job has workers 32, with which"),
        ("finetune", {"model": "Qwen/Qwen3-8B"}, "model \x1b[31mQwen/Qwen3-8B\n", "a job with model [31mQwen/Qwen3-8B, and this job has model Qwen/"),
        ("gpt-6.7b", {"kind": "gpt-6.7b"}, None, "/efs/run7 has no checkpoint of gpt-6.7b that was written to its end. Wait for one"),
    ],
)  # fmt: skip
def test_what_it_cannot_go_on_from(
    kind: str, same: dict[str, str], had: str | None, message: str, cluster: Cluster
) -> None:
    """The head node says so before anything is submitted, and `prepare` too."""
    made, write_them = MADE[kind]
    if had is not None:
        write_them(cluster.root / "efs/run7")
        write(cluster.root / "efs/run7/trn-checkpoints", f"{had}\n")
    else:
        write(cluster.root / "efs/run7/step_500/optim/x.pt")
    folder = cluster.write(kind=kind, checkpoints=going_on(made, "/efs/run7", **same))
    for mode in ("check", "fetch"):
        code, output = cluster.prepare(folder, mode)
        assert (code, message in output, "\x1b" in output) == (64, True, False), output


@pytest.mark.parametrize("source", ["/efs/none", "no-such-job-1", "/efs/empty"])
def test_where_there_is_none(source: str, cluster: Cluster) -> None:
    (cluster.root / "efs/empty").mkdir(parents=True)
    folder = cluster.write(checkpoints=going_on(SCRIPT, source))
    code, output = cluster.prepare(folder, "check")
    message = (
        f"{source} has no checkpoint of script"
        if source == "/efs/empty"
        else f"no directory of checkpoints {source} on"
    )
    assert (code, message in output) == (64, True), output


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"kind": "gpt-6.7b"},
            "earlier-1 is a job of kind gpt-6.7b, whose checkpoints script does not read. Submit the same kind",
        ),
        ({"kind": "\x1b[2J" * 100}, "earlier-1 is a job of kind [2J[2J"),
        ({"kind": 3}, ""),
        ([], ""),
    ],
)
def test_a_job_of_another_kind(record: object, message: str, cluster: Cluster) -> None:
    write(cluster.folder("earlier-1") / "checkpoints/1.pt")
    write(cluster.folder("earlier-1") / "job.json", json.dumps(record))
    folder = cluster.write(checkpoints=going_on(SCRIPT, "earlier-1"))
    code, output = cluster.prepare(folder, "check")
    assert (code, message in output, "\x1b" in output) == (64 if message else 3, True, False), output


def test_it_is_refused_also_where_something_else_is_to_be_fetched(cluster: Cluster) -> None:
    steps = (
        PrepareStep("prefix", {"name": "set", "uri": "s3://b/x/"}),
        PrepareStep("modules", {"names": ("no_such_module",), "fix": ""}),  # of packages that are not there yet
        PrepareStep(
            "files", {"folder": "/none", "pattern": "x", "count": 1, "fix": "", "says": "job a has written none"}
        ),
    )
    assert cluster.prepare(cluster.write(steps[:2]), "check") == (3, "")
    assert cluster.prepare(cluster.write(steps), "check") == (64, "trn: job a has written none\n")
    folder = cluster.write(steps[:2], "run-2", checkpoints=going_on(SCRIPT, "/efs/none"))
    code, output = cluster.prepare(folder, "check")
    assert (code, "there is no directory of checkpoints /efs/none" in output) == (64, True), output
