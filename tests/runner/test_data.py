"""Data sets, sources and models that `prepare` fetches, with the AWS CLI and the S3 of the local AWS, and real git; and what it refuses."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from sandbox import LocalAws, head_node
from tests.runner.preparing import Cluster
from tests.runner.test_unpack import packed
from tests.support import need
from trainium_cdk.client.jobs import fetching
from trainium_cdk.client.jobs.words import on_cluster
from trainium_cdk.description.catalog.sources import SourceTree, sources
from trainium_cdk.runner.spec import Place, PrepareStep

BUCKET = "runner-data"
CONTENT = {"set.tar": packed(("set/a", "first"), ("set/b", "second")), "set.bin": bytes(range(256)) * 40}


@pytest.fixture
def cluster(tmp_path: Path, local_aws: LocalAws) -> Cluster:
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    local_aws.client("s3").create_bucket(Bucket=BUCKET)
    return Cluster(tmp_path, {"PATH": os.environ["PATH"], **local_aws.variables})


def put(aws: LocalAws, key: str, content: bytes) -> str:
    aws.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content)
    return f"s3://{BUCKET}/{key}"


def files_below(folder: Path) -> dict[str, bytes]:
    there = folder.rglob("*") if folder.exists() else ()
    return {str(f.relative_to(folder)): f.read_bytes() for f in there if f.is_file()}


@pytest.mark.parametrize(
    ("key", "at"), [("set.tar", 0), ("set.bin", -1)], ids=["archive, first byte", "file, last byte"]
)
def test_an_object_with_one_changed_byte_is_refused(key: str, at: int, local_aws: LocalAws, cluster: Cluster) -> None:
    content = CONTENT[key]
    changed = bytearray(content)
    changed[at] ^= 1
    wanted, found = hashlib.sha256(content).hexdigest(), hashlib.sha256(changed).hexdigest()
    uri = put(local_aws, key, bytes(changed))
    step = PrepareStep(
        "archive" if key.endswith(".tar") else "file", {"name": "corpus", "uri": uri, "sha256": wanted, "public": True}
    )
    folder = cluster.write([step])
    assert cluster.prepare(folder, "check") == (3, "")
    code, output = cluster.prepare(folder)
    if key == "set.bin":
        assert (
            code,
            f"trn: {uri} has the SHA-256 {found}, and not {wanted}: it was replaced or damaged. It was deleted. Use another copy\n"
            in output,
        ) == (64, True)
    assert code in (64, 75)
    assert files_below(cluster.trn / "data") == {}
    assert not [f for f in (cluster.trn / "done").iterdir() if f.suffix != ".lock"]

    # the right one is fetched afterwards: nothing of the refused one is taken for a part of it
    put(local_aws, key, content)
    code, output = cluster.prepare(folder)
    assert code == 0, output
    assert f"trn: SHA-256 of {uri} verified\n" in output
    expected = {"set/a": b"first", "set/b": b"second"} if key == "set.tar" else {key: content}
    assert files_below(cluster.trn / "data/corpus") == expected
    assert cluster.prepare(folder, "check") == (0, "")


def test_an_archive_of_another_content_is_refused_though_it_is_whole(local_aws: LocalAws, cluster: Cluster) -> None:
    uri = put(local_aws, "other.tar", CONTENT["set.tar"])
    given = {"name": "corpus", "uri": uri, "sha256": "0" * 64, "public": True}
    code, output = cluster.prepare(cluster.write([PrepareStep("archive", given)]))
    assert (code, "it was replaced or damaged" in output) == (64, True)
    assert files_below(cluster.trn / "data") == {}
    folder = cluster.write([PrepareStep("archive", given)], "run-2")
    assert cluster.prepare(folder, TRN_UNVERIFIED_DATA="1")[0] == 0
    assert cluster.write([PrepareStep("archive", given)], "run-3", variables={"TRN_UNVERIFIED_DATA": "1"})


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (packed(("../x", "a")), 64, "is refused: '../x' is outside the folder"),
        (packed(("a", "x" * 5000), ("b", "y" * 5000))[:7000], 75, "could not be unpacked: the archive is damaged: "),
        (b"no archive", 75, "could not be unpacked: the archive is damaged: "),
        (None, 75, "cannot read s3://runner-data/bad.tar: "),
    ],
    ids=["hostile", "cut", "no archive", "absent"],
)
def test_an_archive_that_cannot_be(
    content: bytes | None, code: int, message: str, local_aws: LocalAws, cluster: Cluster
) -> None:
    if content is not None:
        put(local_aws, "bad.tar", content)
    else:
        local_aws.client("s3").delete_object(Bucket=BUCKET, Key="bad.tar")
    steps = fetching.data(f"s3://{BUCKET}/bad.tar", "").steps
    status, output = cluster.prepare(cluster.write(steps))
    assert (status, message in output, "Traceback" in output) == (code, True, False), output
    assert files_below(cluster.trn / "data") == {}


def test_a_large_archive_that_is_hostile_at_its_beginning_does_not_hang(local_aws: LocalAws, cluster: Cluster) -> None:
    """Whoever sends it waits for a reader."""
    put(local_aws, "bad.tar", packed(("/x", "a")) + bytes(20_000_000))
    code, output = cluster.prepare(cluster.write(fetching.data(f"s3://{BUCKET}/bad.tar", "").steps))
    assert (code, "'/x' is outside the folder" in output) == (64, True), output


def test_a_prefix_is_fetched_as_it_is_there_also_after_an_interruption(local_aws: LocalAws, cluster: Cluster) -> None:
    """What is left of an attempt before is not a part of the data set: a file that the prefix no longer has, or the folder itself."""
    for name in ("a", "below/b"):
        put(local_aws, f"corpus/{name}", name.encode())
    step = PrepareStep("prefix", {"name": "set", "uri": f"s3://{BUCKET}/corpus"})
    data = cluster.trn / "data"
    for left in (data / "set.part/removed", data / "set/below/b"):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"old")
        (cluster.trn / "done/data-set").unlink(missing_ok=True)
        code, output = cluster.prepare(cluster.write([step]))
        assert (code, files_below(data / "set")) == (0, {"a": b"a", "below/b": b"below/b"}), output
        assert not (data / "set.part").exists()
    code, output = cluster.prepare(
        cluster.write([PrepareStep("prefix", {"name": "none", "uri": f"s3://{BUCKET}/none/"})])
    )
    assert (code, f"there is nothing at s3://{BUCKET}/none/. Check the bucket and the prefix" in output) == (64, True)


def test_without_the_aws_cli_it_says_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {"PATH": str(tmp_path)})
    for steps in (fetching.data("s3://b/x/", "").steps, fetching.data("s3://b/x.tar", "").steps):
        code, output = cluster.prepare(cluster.write(steps))
        assert (code, output.splitlines()[-1]) == (
            64,
            "trn: there is no program aws here. Use an image that has it, as the examples of trn image build do",
        )


def test_what_does_not_fit_on_the_disk_is_not_begun(tmp_path: Path) -> None:
    aws = tmp_path / "bin/aws"
    aws.parent.mkdir()
    aws.write_text("#!/bin/sh\necho '{\"ContentLength\": 1000000000000000}'\n")
    aws.chmod(0o755)
    cluster = Cluster(tmp_path, {"PATH": f"{aws.parent}:{os.environ['PATH']}"})
    for steps in (fetching.data(None, "gpt2-wikipedia").steps, fetching.data("s3://b/x.tar", "").steps):
        code, output = cluster.prepare(cluster.write(steps))
        assert (code, " needs 1000000000000000 bytes more, and " in output) == (75, True), output
        assert " bytes are free. Free space, or choose another directory\n" in output


def test_the_client_passes_the_checksums_that_the_catalogue_has() -> None:
    recorded = {o.uri: o.sha256 for objects in sources().datasets.values() for o in objects if o.sha256}
    assert sorted(uri.rpartition("/")[2] for uri in recorded) == ["gpt2-merges.txt", "gpt2-vocab.json"]
    steps = [step for name in sources().datasets for step in fetching.data(None, name).steps]
    assert {step.with_["uri"]: step.with_["sha256"] for step in steps if step.with_["sha256"]} == recorded
    assert all(step.with_["public"] for step in steps)


def test_where_data_is() -> None:
    assert fetching.data("/efs/x", "").place == (Place("root"), "/efs/x")
    assert fetching.data("s3://b/a b/", "").place != fetching.data("s3://b/a-b/", "").place
    assert on_cluster("/efs/x", ["/efs"]) == ((Place("root"), "/efs/x"),)
    assert on_cluster("/efsx", ["/efs"]) == on_cluster(None, ["/efs"]) == ()


# --- sources --------------------------------------------------------------------------------------------------------------------------


def test_a_commit_is_fetched_once(tmp_path: Path) -> None:
    made = tmp_path / "repository"
    made.mkdir()
    (made / "train.py").write_text("1\n")
    head_node.make_repository(made)
    tree = SourceTree(f"file://{made}", head_node.REF, "TRN_X_REF")
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    cluster = Cluster(tmp_path, {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **git})
    found = fetching.source("x", tree, {})
    folder = cluster.write(found.steps)
    left = cluster.trn / f"src/x-{head_node.REF}.part/left"
    left.parent.mkdir(parents=True)
    left.touch()
    assert cluster.prepare(folder, "check")[0] == 3
    code, output = cluster.prepare(folder)
    assert code == 0, output
    assert sorted(f.name for f in (cluster.trn / "src").iterdir()) == [f"x-{head_node.REF}"]
    assert (cluster.trn / f"src/x-{head_node.REF}/train.py").read_text() == "1\n"
    made.rename(tmp_path / "away")
    assert [cluster.prepare(folder, mode)[0] for mode in ("check", "fetch")] == [0, 0]
    # the user's own variable names another one; a sandbox has one in the place of all
    assert fetching.source("x", tree, {"TRN_X_REF": "v2"}).place == (Place("trn"), "/src/x-v2")
    other = SourceTree(f"file://{tmp_path}/away", "0" * 40, "TRN_X_REF")
    code, output = cluster.prepare(cluster.write(fetching.source("y", other, {}).steps, "run-2"))
    assert (code, f"away could not be fetched at {'0' * 40}: see what git says above" in output) == (75, True)
    code, output = cluster.prepare(
        cluster.write(fetching.source("y", other, {}).steps, "run-2"), TRN_X_REF=head_node.REF
    )
    assert (code, (cluster.trn / f"src/y-{'0' * 40}/train.py").exists()) == (0, True), output


@pytest.mark.parametrize(("name", "there"), [("json", True), ("no_such_module", False)])
def test_a_source_may_not_be_needed(name: str, there: bool, tmp_path: Path) -> None:
    steps = fetching.source("x", SourceTree("file:///none", "main", "V"), {}, unless=[name]).steps
    cluster = Cluster(tmp_path)
    assert (cluster.prepare(cluster.write(steps), "check")[0] == 0) == there


# --- models ---------------------------------------------------------------------------------------------------------------------------

HUB = """
import os
from pathlib import Path

def snapshot_download(repo_id, *, revision="main", allow_patterns):
    # as the original: a folder for each commit, and the commit of a name that is none
    model = Path(os.environ["HF_HOME"], "hub", "models--" + repo_id.replace("/", "--"))
    commit = os.environ["NEWEST"] if revision == "main" else revision
    (model / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
    for name in allow_patterns:
        (model / "snapshots" / commit / name).touch()
    if revision == "main":
        (model / "refs").mkdir(exist_ok=True)
        (model / "refs/main").write_text(commit)
"""


def test_all_files_of_a_model_are_of_one_commit(tmp_path: Path) -> None:
    """A job that reads the tokenizer alone comes first; the model is changed; a job that needs its weights follows."""
    (tmp_path / "huggingface_hub.py").write_text(HUB)
    cluster = Cluster(tmp_path, {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)})
    for newest, names in (("a", ["tokenizer.json"]), ("b", ["tokenizer.json", "model.safetensors"])):
        folder = cluster.write(fetching.model_files("owner/model", *names).steps, f"run-{newest}")
        code, output = cluster.prepare(folder, NEWEST=newest)
        assert code == 0, output
        assert cluster.prepare(folder, "check") == (0, "")
    [snapshot] = (cluster.trn / "hf_cache/hub/models--owner--model/snapshots").iterdir()
    assert {file.name for file in snapshot.iterdir()} == {"tokenizer.json", "model.safetensors"}


GATED = """import os
def snapshot_download(*_, **__):
    os.makedirs(os.environ["HF_HOME"] + "/hub/models--owner--model", exist_ok=True)
    raise SystemExit(len(os.environ.get("HF_TOKEN", "")) != 14)
"""


def test_variables_of_the_job_reach_prepare_and_are_not_shown(tmp_path: Path) -> None:
    """A fake of the hub that takes gated models from those who have the token."""
    (tmp_path / "huggingface_hub.py").write_text(GATED)
    cluster = Cluster(tmp_path, {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)})
    steps = fetching.model("owner/model", weights=True).steps
    code, output = cluster.prepare(cluster.write(steps, variables={"HF_TOKEN": "hf_s3cret it's"}))
    assert (code, "s3cret" in output) == (0, False), output
    shown = {f.name for f in tmp_path.rglob("*") if f.is_file() and b"s3cret" in f.read_bytes()}
    assert shown <= {"env.json"}
    code, output = cluster.prepare(cluster.write(fetching.model("owner/other", weights=True).steps, "run-2"))
    assert (code, "trn: owner/other could not be fetched: see what its library says above\n" in output) == (75, True)


def test_a_data_set_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "datasets.py").write_text(
        "import os, sys\ndef load_dataset(*a, split):\n    os.makedirs(os.environ['HF_HOME'] + '/datasets', exist_ok=True)\n    print(a, split, file=sys.stderr)\n"
    )
    cluster = Cluster(tmp_path, {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)})
    for words, said in (
        (("owner/name", "small"), "('owner/name', 'small') train"),
        (((Place("root"), "/efs/x"),), "/efs/x',) train"),
    ):
        folder = cluster.write(fetching.dataset(*words))  # type: ignore[arg-type]
        outputs = [cluster.prepare(folder)[1] for _ in range(2)]
        assert (said in outputs[0], outputs[1]) == (True, "trn: everything is already fetched\n"), outputs


# --- what nobody fetches --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fetch", "check"])
@pytest.mark.parametrize(
    ("shards", "needed", "code"), [(2, 2, 0), (3, 2, 0), (1, 2, 64), (0, 1, 64), (None, 2, 0)],
    ids=["enough", "more", "too few", "none", "not visible from here"],
)  # fmt: skip
def test_a_data_set_of_too_few_shards_is_rejected(
    mode: str, shards: int | None, needed: int, code: int, tmp_path: Path
) -> None:
    data = tmp_path / "data set"
    if shards is not None:
        (data / "below").mkdir(parents=True)
        for n in range(shards):  # in the folder itself and right below it
            (data / ("below" if n % 2 else ".") / f"part_training_{n}.hdf5").touch()
        (data / "part_test_0.hdf5").touch()
        (data / "below" / "deeper").mkdir()
        (data / "below" / "deeper" / "part_training_9.hdf5").touch()  # the training script does not look there
    cluster = Cluster(tmp_path)
    steps = fetching.enough_files((Place("root"), "/data set"), "*_training_*.hdf5", needed, "Use fewer nodes")
    message = f"trn: {data} has {shards} files *_training_*.hdf5, and the job needs {needed}. Use fewer nodes\n"
    told = message if code else "" if mode == "check" else "trn: everything is already fetched\n"
    assert cluster.prepare(cluster.write(steps), mode) == (code, told)


def test_what_another_job_has_written_is_needed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    steps = fetching.enough_files((Place("trn"), "/jobs/a/output"), "ckpt_*.pt", 1, "", says="job a has written none")
    folder = cluster.write(steps)
    assert cluster.prepare(folder, "check") == (64, "trn: job a has written none\n")
    (cluster.folder("a") / "output").mkdir(parents=True)
    assert cluster.prepare(folder, "check")[0] == 64
    (cluster.folder("a") / "output/ckpt_3.pt").touch()
    assert cluster.prepare(folder, "check") == (0, "")


def test_a_step_that_this_runner_does_not_know(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for step, message in (
        (PrepareStep("magic"), "this runner knows no step 'magic' of prepare"),
        (
            PrepareStep("files", {"folder": (Place("cache"), "/x"), "pattern": "", "count": 1, "fix": ""}),
            "has a word that this runner does not know",
        ),
    ):
        code, output = cluster.prepare(cluster.write([step]))
        assert (code, output.count("\n"), message in output) == (64, 1, True), output


def test_compressed_archives_too(local_aws: LocalAws, cluster: Cluster) -> None:
    uri = put(local_aws, "set2.tar", gzip.compress(packed(("a", "1"), ("b", (tarfile.SYMTYPE, "a")))))
    found = fetching.data(uri, "")
    code, output = cluster.prepare(cluster.write(found.steps))
    assert code == 0, output
    assert "trn: 2 entries, 1 bytes unpacked, " in output
