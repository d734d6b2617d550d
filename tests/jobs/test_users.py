"""Several users of one Slurm, each with a real account: jobs and files are their own."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox import LocalAws, slurm_users
from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.jobs.test_slurm import log, script
from tests.support import head_node, need
from trainium_cdk import outputs, settings
from trainium_cdk.jobs import SlurmBackend, SsmTransport, SubmitError, TransportError, UnknownJob
from trainium_cdk.jobs.connect import connect
from trainium_cdk.operations.teardown.occupants import lines, occupants

CLUSTER, BUCKET = "jobs-of-users", "trn-jobs-of-users"
USERS = {"alice": 2001, "bob": 2002, "dora": 2003}
As = Callable[..., SlurmBackend]


@pytest.fixture(scope="module")
def slurm(local_aws: LocalAws) -> Iterator[LocalSlurm]:
    """A Slurm with two users beside the image's, whose head node is an instance of the local AWS."""
    reason = available() or slurm_users.unavailable()
    need(reason is None, str(reason))
    folder = Path(tempfile.mkdtemp(prefix="trn-users-"))
    folder.chmod(0o755)  # others pass through
    try:
        with LocalSlurm.start(folder / "slurm", CONFIGURATION, environment=local_aws.variables, users=USERS) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def backend_of(local_aws: LocalAws, slurm: LocalSlurm) -> Iterator[As]:
    """The way of one user to the cluster: Run Command, as root, and from there to the account."""
    s3 = local_aws.client("s3")
    with head_node(local_aws, CLUSTER) as head:
        attached = slurm.attach(local_aws.directory / "clusters" / CLUSTER)
        s3.create_bucket(Bucket=BUCKET)

        def made(user: str = "ubuntu") -> SlurmBackend:
            cluster = make_cluster(fleet(nodes=4), cluster_name=CLUSTER, users="local", bucket=BUCKET).of_user(user)
            person = cluster.folder != "trn"
            way = SsmTransport(local_aws.client("ssm"), head, user, person=person, s3=s3, bucket=BUCKET)
            way.interval = 0.2
            return SlurmBackend(cluster, way)

        yield made
        attached.unlink()
        attached.parent.rmdir()
        s3.delete_bucket(Bucket=BUCKET)


def test_each_user_has_jobs_and_files_of_its_own(slurm: LocalSlurm, backend_of: As) -> None:
    """Two submit at once. Each lists, follows and cancels; what is the other's is refused, by Slurm and by the file system."""
    alice, bob, image = (backend_of(name) for name in ("alice", "bob", "ubuntu"))
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
    with pytest.raises(TransportError, match="denied"):
        bob.on_nodes(hers.id, "cat script/run.sh")
    denied = bob.run_shared(f"scancel {hers.stages['train']} 2>&1; true")
    assert "denied" in denied
    for path in ("", "logs/train.log", "script/run.sh", "train.sbatch"):
        assert "Permission denied" in bob.run_shared(f"cat $TRN_SHARED_ROOT{hers.directory}/{path} 2>&1; true")
    number = hers.stages["train"]
    asked = f"scontrol -dd show job {number}; squeue -a -o %all; scontrol write batch_script {number} - 2>&1"
    found = bob.run_shared(f"{asked}; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null | tr '\\0' ' '; true")
    assert hers.id in found
    assert "s3cr3t-of-bob" in found
    assert "s3cr3t-of-alice" not in found

    # a job of the other with the name and the comment of one's own is not taken for it
    same = f"--job-name={hers.id}:train --comment=trn:{hers.id}"
    bob.run_shared(f"sbatch -N1 -o /dev/null {same} --wrap='sleep 300'")
    assert alice.cancel(hers.id).state == "CANCELLED"
    assert {job.id: job.user for job in bob.list()}[hers.id] == "bob"
    bob.run_shared(f"scancel --name={hers.id}:train")
    assert bob.status(his.id).state == "RUNNING"
    assert bob.cancel(his.id).state == "CANCELLED"
    image.cancel(images.id)
    assert wait_until(lambda: not {hers.id, images.id} & {job.id for job in bob.list()}, 60, 0.2)  # they have ended
    with pytest.raises(UnknownJob):
        bob.status(hers.id)


def test_whose_jobs_a_deletion_ends(backend_of: As) -> None:
    """Jobs of several users, in a queue and running, and what one of them submitted with `sbatch`."""
    alice, bob, image = (backend_of(name) for name in ("alice", "bob", "ubuntu"))
    long = script("sleep 300", nodes=1)
    ids = [
        alice.submit(long.model_copy(update={"user": "alice"}), "long").id,
        alice.submit(long.model_copy(update={"user": "alice", "nodes": 4}), "queued").id,
        image.submit(long.model_copy(update={"user": "me"}), "mine").id,
        bob.submit(long.model_copy(update={"user": "bob"}), "mine").id,  # the same id
    ]
    plain = bob.run_shared("sbatch --parsable -N1 -o /dev/null --comment='a|b' --wrap='sleep 300'").strip()
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
        bob.run_shared(f"scancel {plain}")
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
        his = bob.run_shared(f"sbatch --parsable -N1 -o /dev/null {named} --wrap=true").strip()
        stages = f"$TRN_SHARED_ROOT{sent.directory}/stages"
        alice.run_shared(f"scancel {sent.stages['train']}; echo train {his} > {stages}")
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
        bob.run_shared(f"{trap} {place}/alice")
        with pytest.raises(
            SubmitError, match=r"trn-users/alice is not a folder of alice, but a .* of bob. An administrator"
        ):
            alice.submit(script("true"))
        with pytest.raises(TransportError, match="is not a folder of alice"):
            alice.list()
    finally:
        (place / "alice").unlink() if (place / "alice").is_symlink() else (place / "alice").rmdir()
        (place / "aside").rename(place / "alice")
    assert "not permitted" in bob.run_shared(f"mv {place}/alice {place}/mine 2>&1; true")


def test_a_user_of_a_directory_gets_a_home_at_the_first_command(slurm: LocalSlurm, backend_of: As) -> None:
    """As at the first login: an account of a directory is there without one."""
    home = slurm.directory / "homes/dora"
    shutil.rmtree(home)
    print_home = 'cd; pwd; stat -c "%a %U" .'
    assert backend_of("dora").run_shared(print_home).split("\n")[:2] == [str(home), "700 dora"]


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
    tag = {"Key": outputs.pcs.GROUP_TAG, "Value": "pcs_def1234567"}
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
