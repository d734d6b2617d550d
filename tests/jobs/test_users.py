"""Several users of one Slurm, each with a real account: jobs and files are their own."""

from __future__ import annotations

import base64
import contextlib
import gzip
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws, slurm_users
from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.jobs.test_slurm import log, script
from tests.support import head_node, need
from trainium_cdk import outputs, settings
from trainium_cdk.client.cli.destroy import only_there
from trainium_cdk.client.cli.options import Target
from trainium_cdk.client.jobs import workdir
from trainium_cdk.client.jobs.connection import connect
from trainium_cdk.client.jobs.copy import Copy
from trainium_cdk.client.operations.teardown.occupants import lines, occupants
from trainium_cdk.jobs import (
    BertLarge,
    Finetune,
    Gpt,
    JobError,
    Script,
    SlurmBackend,
    SsmTransport,
    SubmitError,
    TransportError,
    UnknownJob,
)

CLUSTER, BUCKET = "jobs-of-users", "trn-jobs-of-users"
USERS = {"alice": 2001, "bob": 2002, "dora": 2003}
As = Callable[..., SlurmBackend]


@contextlib.contextmanager
def slurm_of_users(local_aws: LocalAws, configuration: Mapping[str, Any]) -> Iterator[LocalSlurm]:
    """A Slurm with users beside the image's, whose head node is an instance of the local AWS."""
    reason = available() or slurm_users.unavailable()
    need(reason is None, str(reason))
    folder = Path(tempfile.mkdtemp(prefix="trn-users-"))
    folder.chmod(0o755)  # others pass through
    try:
        with LocalSlurm.start(folder / "slurm", configuration, environment=local_aws.variables, users=USERS) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def slurm(local_aws: LocalAws) -> Iterator[LocalSlurm]:
    with slurm_of_users(local_aws, CONFIGURATION) as running:
        yield running


@pytest.fixture(scope="module")
def backend_of(local_aws: LocalAws, slurm: LocalSlurm) -> Iterator[As]:
    """The way of one user to the cluster: Run Command, as root, and from there to the account."""
    s3 = local_aws.client("s3")
    with head_node(local_aws, CLUSTER) as head:
        attached = slurm.attach(local_aws.directory / "clusters" / CLUSTER)
        s3.create_bucket(Bucket=BUCKET)
        role = slurm_users.JOB_ROLE.rpartition("/")[2]
        local_aws.client("iam").create_role(RoleName=role, AssumeRolePolicyDocument="{}")

        def made(user: str = outputs.slurm.JOBS_USER) -> SlurmBackend:
            cluster = make_cluster(fleet(nodes=4), cluster_name=CLUSTER, users="local", bucket=BUCKET).of_user(user)
            person = cluster.folder != "trn"
            way = SsmTransport(local_aws.client("ssm"), head, user, person=person, s3=s3, bucket=BUCKET)
            way.interval = 0.2
            return SlurmBackend(cluster, way)

        yield made
        local_aws.client("iam").delete_role(RoleName=role)
        attached.unlink()
        attached.parent.rmdir()
        s3.delete_bucket(Bucket=BUCKET)


def run(backend: SlurmBackend, text: str) -> str:
    """What a script of that user prints on the head node."""
    done = backend.transport.run(text, timeout=600)
    assert done.code == 0, done.stderr
    return done.stdout


def test_each_user_has_jobs_and_files_of_its_own(slurm: LocalSlurm, backend_of: As) -> None:
    """Two submit at once. Each lists, follows and cancels; what is the other's is refused, by Slurm and by the file system."""
    alice, bob, image = (backend_of(name) for name in ("alice", "bob", "trn-jobs"))
    body = 'echo "$(id -un) has $SECRET"; sleep 300'
    with ThreadPoolExecutor() as pool:
        sent = [
            pool.submit(backend.submit_many, [script(body, env={"SECRET": f"s3cr3t-of-{name}"}, user=name)], name)
            for backend, name in ((alice, "alice"), (bob, "bob"), (image, "laptop"))
        ]
        hers, his, images = (one for jobs in sent for one in jobs.result())
    assert hers.directory == f"/efs/trn-users/alice/jobs/{hers.id}"
    assert wait_until(lambda: "alice has s3cr3t-of-alice" in log(alice, hers.id), 60, 0.2), log(alice, hers.id)
    assert wait_until(lambda: "bob has s3cr3t-of-bob" in log(bob, his.id), 60, 0.2)
    assert slurm.run(["squeue", "-h", "-j", hers.stages["train"], "-o", "%u"]).stdout == "alice\n"

    # each sees all that run, with their user; a beginning of an id, and `latest`, mean one's own
    for backend, own in ((alice, hers), (bob, his), (image, images)):
        assert {(job.id, job.user) for job in backend.list()} >= {(hers.id, "alice"), (his.id, "bob")}
        assert backend.ids(9) == (own.id,)
        assert {job.id for job in backend.active()} == {hers.id, his.id, images.id}
    assert (seen := bob.status(hers.id)).user == "alice"
    assert (seen.state, seen.queue, seen.nodes) == ("RUNNING", "compute1", 1)

    # one may not touch the other's
    with pytest.raises(TransportError, match=f"{hers.id} is a job of alice, and you are bob: only alice can cancel it"):
        bob.cancel(hers.id)
    with pytest.raises(TransportError, match="only alice can read its log"):
        log(bob, hers.id)
    with pytest.raises(TransportError, match="only alice can work on its nodes"):
        bob.on_nodes(hers.id, ["cat", "files/run.sh"])
    of_hers = hers.stages["train"]
    for command in (f"scancel {of_hers}", f"srun --jobid={of_hers} --overlap -N1 -n1 cat files/run.sh"):
        assert "denied" in run(bob, f"{command} 2>&1; true")
    for path in ("", "logs/train.log", "files/run.sh", "job.json", "env.json"):
        assert "Permission denied" in run(bob, f"cat $TRN_SHARED_ROOT{hers.directory}/{path} 2>&1; true")
    number = hers.stages["train"]
    asked = f"scontrol -dd show job {number}; squeue -a -o %all; scontrol write batch_script {number} - 2>&1"
    found = run(bob, f"{asked}; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null | tr '\\0' ' '; true")
    assert hers.id in found
    assert "s3cr3t-of-bob" in found
    assert "s3cr3t-of-alice" not in found

    # a job of the other with the name and the comment of one's own is not taken for it
    same = f"--job-name={hers.id}:train --comment=trn:{hers.id}"
    run(bob, f"sbatch -N1 -o /dev/null {same} --wrap='sleep 300'")
    assert alice.cancel(hers.id).state == "CANCELLED"
    assert {job.id: job.user for job in bob.list()}[hers.id] == "bob"
    run(bob, f"scancel --name={hers.id}:train")
    assert bob.status(his.id).state == "RUNNING"
    assert bob.cancel(his.id).state == "CANCELLED"
    image.cancel(images.id)
    assert wait_until(lambda: not {hers.id, images.id} & {job.id for job in bob.list()}, 60, 0.2)  # they have ended
    with pytest.raises(UnknownJob):
        bob.status(hers.id)


START_UP = (".bash_profile", ".bash_login", ".profile", ".bashrc", ".bash_logout", ".zshenv")


@pytest.mark.parametrize("user", ["alice", "trn-jobs"])
def test_what_a_job_writes_into_start_up_files_does_not_run_on_the_head_node(
    slurm: LocalSlurm, backend_of: As, user: str
) -> None:
    backend = backend_of(user)
    home = Path(run(backend, "pwd").strip())
    before = {name: (home / name).read_bytes() for name in START_UP if (home / name).exists()}
    body = f"cd {home}; for file in {' '.join(START_UP)}; do echo 'echo ran >> ~/planted' >> $file; done"
    body += "; mkdir -p .local/bin bin; printf '#!/bin/sh\\necho ran >> ~/planted\\n' | tee bin/squeue .local/bin/squeue; chmod +x bin/* .local/bin/*"
    try:
        sent = backend.submit(script(body), "plant")
        assert backend.wait(sent.id, 60).ok
        slurm.run(["/usr/sbin/runuser", "-l", user, "-c", "true"])
        assert (home / "planted").exists(), "a login shell runs it"
        (home / "planted").unlink()
        assert sent.id in {job.id for job in backend.list()}
        assert run(backend, "id -un; echo $PATH").split()[0] == user
        backend.submit(script("true"), "after")
        assert not (home / "planted").exists()
    finally:
        for name in START_UP:
            (home / name).write_bytes(before[name]) if name in before else (home / name).unlink()


def credentials(backend: SlurmBackend, prefix: str = "") -> str:
    """How a program gets credentials there: by the identity of the node, or not."""
    return run(backend, f"{prefix} aws configure list 2>&1 | awk '$1 == \"access_key\" {{ print $NF }}'").strip()


@contextlib.contextmanager
def command_lines(text: str) -> Iterator[list[str]]:
    """The command lines on this machine that have a text, meanwhile."""
    found: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    line = process.read_bytes().decode(errors="replace")
                    found.extend([line] if text in line else [])

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield found
    finally:
        over.set()
        watch.join()


@pytest.mark.sweep
def test_a_person_sends_a_folder_and_copies_files_without_an_identity_on_the_head_node(
    local_aws: LocalAws, slurm: LocalSlurm, backend_of: As, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node gives a user its credentials. A job has those of its role, from root's service on its node."""
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    alice, jobs = backend_of("alice"), backend_of("trn-jobs")
    assert (credentials(jobs), credentials(alice)) == ("None", "None")
    assert credentials(alice, "srun -N1") == "None"
    body = "aws configure list | grep access_key; echo mine > file; aws s3 cp file s3://$BUCKET/jobs/file-$(id -un)"
    for backend in (alice, jobs):
        done = backend.submit(script(body, env={"BUCKET": BUCKET}))
        assert backend.wait(done.id, 60).ok, log(backend, done.id)
        assert "container-role" in log(backend, done.id)
    for name in ("project", "data/deep", "back"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project/run.sh").write_text("cat words.txt; id -un\n")
    (tmp_path / "project/words.txt").write_text("here are words\n")
    for number in range(300):  # so many that request and response are objects themselves
        (tmp_path / f"data/deep/{'long' * 20}{number}").write_text(f"{number}\n")
    sent: list[str] = []
    invoke = SsmTransport._invoke
    monkeypatch.setattr(SsmTransport, "_invoke", lambda self, text, time: sent.append(text) or invoke(self, text, time))
    try:
        with command_lines("X-Amz-") as seen:
            job = Script.from_workdir(tmp_path / "project", "run.sh")
            done = alice.submit(job, "folder")
            assert set(done.stages) == {"train"}, "it was fetched at once"
            assert alice.wait(done.id, 60).ok
            assert "0: here are words\n0: alice\n" in log(alice, done.id)
            assert [
                one.existing for one in alice.submit_many([job, job.model_copy(update={"name": "b"})], "folder2")
            ] == [False] * 2

            copy = Copy(alice)
            copy.upload(copy.plan_upload(tmp_path / "data", "/efs/trn-users/alice/data"))
            copy.download(copy.plan_download("/efs/trn-users/alice/data", tmp_path / "back"))
        assert {f.name: f.read_text() for f in (tmp_path / "back/deep").iterdir()} == {
            f.name: f.read_text() for f in (tmp_path / "data/deep").iterdir()
        }
        # the addresses are secrets
        assert seen == []
        assert sent
        assert not [text for text in sent if "base64 -d" in text and "EOF" in text and "X-Amz-" in unpacked(text)]
        folder = Path(slurm.node_env()["TRN_SHARED_ROOT"] + done.directory)
        assert not [file for file in folder.rglob("*") if file.is_file() and b"X-Amz-" in file.read_bytes()]
        assert "X-Amz-" not in slurm.run(["scontrol", "-dd", "show", "job"]).stdout

        # without them, or where they are refused, a node with an identity fetches
        for addresses in ({}, {job.workdir.archive: f"{local_aws.endpoint}/{BUCKET}/absent"}):
            monkeypatch.setattr(workdir, "folder_addresses", lambda *_, given=addresses: given)
            later = alice.submit(job)
            assert set(later.stages) == {"prepare", "train"}
            assert alice.wait(later.id, 120).ok
    finally:
        s3 = local_aws.client("s3")
        for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
            s3.delete_object(Bucket=BUCKET, Key=found["Key"])


def test_no_command_of_a_person_asks_the_head_node_for_credentials(slurm: LocalSlurm, backend_of: As) -> None:
    """Each command on jobs. What a job needs of S3 is fetched by a node on which it runs."""
    asked = slurm.directory / "log/metadata.out"
    alice = backend_of("alice")
    credentials(alice)
    assert (before := asked.read_text()).endswith("refused user 2001\n")
    s3 = "s3://somewhere/data"
    kinds = [BertLarge(data=s3), BertLarge(data=f"{s3}.tar"), Gpt(data=s3), Finetune()]
    ids, refused = [alice.submit(script("true", nodes=1), "plain").id], []
    for job in (*kinds, script("true", requirements=["six==1.17.0"]), script("true", resume_from=ids[0])):
        try:
            ids.append(alice.submit(job.model_copy(update={"nodes": 1})).id)
        except (JobError, SubmitError) as e:  # what the environment lacks for this kind, for example
            refused.append(str(e))
    assert len(ids) == 5, (ids, refused)  # Trn1 has no Finetune, and there is no checkpoint to resume from
    assert alice.wait(ids[0], 60).ok
    alice.list(), alice.active(), alice.others(), alice.nodes()
    for id in ids:
        assert log(alice, id) is not None
        alice.settings(id), alice.status(id), alice.cancel(id)
    assert asked.read_text() == before


def unpacked(command: str) -> str:
    """The script in the text of a Run Command."""
    return gzip.decompress(base64.b64decode(command.partition("<<'EOF' || fail\n")[2].partition("\nEOF")[0])).decode()


def test_whose_checkpoints_a_deletion_loses(
    backend_of: As, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of each user, as far as the caller may read them; two users may have one id."""
    image, body = backend_of("trn-jobs"), 'echo 1 > "$TRN_CHECKPOINTS/model.bin"'
    for name in ("trn-jobs", "alice", "bob"):
        backend = backend_of(name)
        assert backend.wait(backend.submit(script(body, nodes=1), "lost").id, 60).ok

    def connect(*, cluster: Any) -> SlurmBackend:
        if cluster.job_user == "bob":
            raise TransportError("you may not be bob")
        return backend_of(cluster.job_user)

    monkeypatch.setattr("trainium_cdk.client.jobs.connection.connect", connect)
    lines = [line for line in only_there(image, Target("S", implied=frozenset())) if "-lost" in line]
    id = lines[0].split(": ")[1]
    assert lines == [
        f"   only there: {id}: model.bin (2 bytes). To keep it: trn cp cluster:/efs/{folder}/jobs/{id}/checkpoints "
        f"s3://BUCKET/{who}{id} --stack S{user}"
        for folder, who, user in (("trn", "", ""), ("trn-users/alice", "alice/", " --user alice"))
    ]
    assert capsys.readouterr().err.splitlines() == ["checkpoints of bob could not be listed: you may not be bob"]


@pytest.mark.sweep
def test_whose_jobs_a_deletion_ends(backend_of: As) -> None:
    """Jobs of several users, in a queue and running, and what one of them submitted with `sbatch`."""
    alice, bob, image = (backend_of(name) for name in ("alice", "bob", "trn-jobs"))
    long = script("sleep 300", nodes=1)
    ids = [
        alice.submit(long.model_copy(update={"user": "alice"}), "long").id,
        alice.submit(long.model_copy(update={"user": "alice", "nodes": 4}), "queued").id,
        image.submit(long.model_copy(update={"user": "me"}), "mine").id,
        bob.submit(long.model_copy(update={"user": "bob"}), "mine").id,  # the same id
    ]
    plain = run(bob, "sbatch --parsable -N1 -o /dev/null --comment='a|b' --wrap='sleep 300'").strip()
    try:
        assert wait_until(lambda: [o.state for o in occupants(image, "me")].count("RUNNING") == 4, 60, 0.2)
        told = "\n".join(lines(occupants(image, "me", now=time.time() + 7200)))
        shown = re.sub(r"for 2 h( 1 min)?", "for 2 h", told)
        assert shown.splitlines() == [
            f"   ends with it, yours (user me): 1 running; longest: {ids[2]}, for 2 h",
            f"   ends with it, of others (user alice): 1 running and 1 waiting; longest: {ids[0]}, for 2 h",
            f"   ends with it, of others (user bob): 2 running; longest: {ids[3]}, for 2 h",
        ]
        assert [o.own for o in occupants(image, "alice")].count(True) == 2
        assert [o.name for o in occupants(image, "me", waits=True)] == [plain], "the others are waited for"
    finally:
        for backend, id in zip((alice, alice, image, bob), ids, strict=True):
            backend.cancel(id)
        run(bob, f"scancel {plain}")
    assert wait_until(lambda: not occupants(image, "me"), 60, 0.2)


def test_a_number_and_a_name_that_are_another_users_by_now_are_not_taken_for_ones_own(
    slurm: LocalSlurm, backend_of: As
) -> None:
    """Slurm's controller crashed, forgot her job, and gave its number to a job of his, which he has named as hers."""
    alice, bob, job = backend_of("alice"), backend_of("bob"), script("echo again")
    slurm.run(["scontrol", "update", "PartitionName=compute1", "State=DOWN"])  # none begins
    try:
        sent = alice.submit(job, "forgotten")
        named = f"--job-name={sent.id}:train --comment=trn:{sent.id}"
        his = run(bob, f"sbatch --parsable -N1 -o /dev/null {named} --wrap=true").strip()
        record = f"$TRN_SHARED_ROOT{sent.directory}/submitted.json"
        number = sent.stages["train"]
        run(alice, f'scancel {number}; sed -i \'s/"{number}"/"{his}"/\' {record}; grep \'"{his}"\' {record}')
        assert alice.status(sent.id).state == "LOST"
        again = alice.submit(job, "forgotten")
        assert again.resubmitted == ("train",)
        assert slurm.run(["squeue", "-h", "-j", his, "-o", "%T %u"]).stdout == "PENDING bob\n"
        assert again.stages["train"] != his
    finally:
        slurm.run(["scontrol", "update", "PartitionName=compute1", "State=UP"])
    assert alice.wait(sent.id, 60).ok
    assert "again" in log(alice, sent.id)


@pytest.mark.parametrize("user", ["carol", "daemon", "ROOT"])
def test_a_user_must_be_a_person_with_an_account(backend_of: As, user: str) -> None:
    backend = backend_of(user)
    with pytest.raises(SubmitError, match=f"there is no user {user} on i-.*, or it is an account of the system"):
        backend.submit(script("true"))
    with pytest.raises(TransportError, match=f"there is no user {user}"):
        backend.list()


@pytest.mark.parametrize("trap", ["ln -s /tmp", "mkdir"])
def test_a_folder_of_somebody_else_is_not_used(slurm: LocalSlurm, backend_of: As, trap: str) -> None:
    place = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs/trn-users"
    alice, bob = backend_of("alice"), backend_of("bob")
    alice.list()
    (place / "alice").rename(place / "aside")
    try:
        run(bob, f"{trap} {place}/alice")
        with pytest.raises(
            SubmitError, match=r"trn-users/alice is not a folder of alice, but a .* of bob. An administrator"
        ):
            alice.submit(script("true"))
        with pytest.raises(TransportError, match="is not a folder of alice"):
            alice.list()
    finally:
        (place / "alice").unlink() if (place / "alice").is_symlink() else (place / "alice").rmdir()
        (place / "aside").rename(place / "alice")
    assert "not permitted" in run(bob, f"mv {place}/alice {place}/mine 2>&1; true")


def test_a_user_of_a_directory_gets_a_home_at_the_first_command(slurm: LocalSlurm, backend_of: As) -> None:
    """As at the first login: an account of a directory is there without one."""
    home = slurm.directory / "homes/dora"
    shutil.rmtree(home)
    print_home = 'cd; pwd; stat -c "%a %U" .'
    assert run(backend_of("dora"), print_home).split("\n")[:2] == [str(home), "700 dora"]


def test_the_same_through_a_login_node_of_pcs(
    local_aws: LocalAws, slurm: LocalSlurm, backend_of: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From settings to outputs to the account: the login node is found by its tag."""
    for name, value in local_aws.variables.items():
        monkeypatch.setenv(name, value)
    queue = {"name": "compute1", "compute_resources": [{"name": "trn", "max_nodes": 4}]}
    env = settings.validate({"pcs": {"queues": [queue], "users": [{"name": "bob", "uid": 2002}]}})
    exported = outputs.pcs_outputs(env, cluster_id="pcs_abc1234567", login_group_id="pcs_def1234567", bucket=BUCKET)
    cluster = outputs.parse("TrnPcsStack", local_aws.region, {k: v for k, (v, _) in exported.items()})
    tag = {"Key": outputs.slurm.GROUP_TAG, "Value": "pcs_def1234567"}
    local_aws.client("ec2").create_tags(Resources=[backend_of().transport.instance], Tags=[tag])
    place = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs/aws_neuron_venv_pytorch"
    place.symlink_to(slurm.directory / "home/aws_neuron_venv_pytorch")

    bob = connect(cluster=cluster.of_user("bob"))
    sent = bob.submit(script("id -un", env={"SECRET": "1"}))
    assert bob.wait(sent.id, 60).ok
    assert "0: bob\n" in log(bob, sent.id)
    assert sent.id not in {job.id for job in backend_of("alice").list()}
    with pytest.raises(SubmitError, match="there is no user eve on i-"):
        connect(cluster=cluster.of_user("eve")).submit(script("true"))
