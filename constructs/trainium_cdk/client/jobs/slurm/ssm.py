"""Scripts on the head node, or on the login node of AWS PCS, through AWS Systems Manager's Run Command; and EC2's word for the instance on which they
run: a stack's outputs may name any."""

from __future__ import annotations

import base64
import copy
import gzip
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from trainium_cdk._aws import client as aws_client
from trainium_cdk._aws import code_and_message, credentials_error, describe_error
from trainium_cdk.client.jobs import quote
from trainium_cdk.client.jobs.backend import Patience
from trainium_cdk.client.jobs.runner import MOST, MOST_PACKED, pyz
from trainium_cdk.client.jobs.slurm import transport
from trainium_cdk.client.jobs.slurm.transport import INTERVAL, NOT_THEIRS, Result
from trainium_cdk.description.engines import SLURM
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.description.outputs.contract import PAYLOADS, RESPONSES
from trainium_cdk.description.outputs.slurm import GROUP_TAG, PcsCluster
from trainium_cdk.errors import BucketError, TransportError
from trainium_cdk.runner.spec import SpecError, unpack

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_ssm import SSMClient

HEAD_NODE = {"aws:cloudformation:logical-id": "HeadNode"}
"""A tag that CloudFormation sets on the head node of ParallelCluster's own stack, whose name is the cluster's (its templates/cluster_stack.py,
3.16.1)."""
INLINE = 40_000
"""Maximum characters of a payload in the command itself; a larger one goes through the stack's bucket. SSM documents no
maximum request size; this one is a cautious choice."""
FIRST_PAGE, PAGE = 16_000, 22_000
"""Characters of output in one response: Run Command returns the first 24,000 (SSM API reference,
GetCommandInvocation)."""

THROUGH_BUCKET = FIRST_PAGE + 4 * PAGE
"""Characters of output from which on it comes through the stack's bucket, and not page by page."""

TELL_SECONDS = 10.0
"""Seconds without a response from AWS until a message reports it; repeated every 30 s."""
UNANSWERED_SECONDS = 60.0
"""Seconds for which requests for a command's result are retried."""
REMOVE_SECONDS = 20.0
"""Seconds for which the deletion of a payload is retried."""

# Run by root's sh. The script comes from standard input, so that its size does not matter; output is kept in a file
# and returned in pages, compressed and as base64, so that every byte survives.
_WRAPPER = """umask 077
find /tmp -maxdepth 1 -name 'trn-ssm-*' -mmin +60 -exec rm -rf {{}} + 2> /dev/null
d=$(mktemp -d /tmp/trn-ssm-XXXXXXXX) || exit 1
trap 'rm -rf "$d"; exit 143' TERM INT HUP
fail() {{ rm -rf "$d"; exit 1; }}
{payload}
gunzip -t "$d/in" || fail
{check}gunzip -c "$d/in" | {as_user} > "$d/out" 2> "$d/err"
code=$?{checked}
gzip -c "$d/out" | base64 -w 0 > "$d/o"
size=$(wc -c < "$d/o")
echo "trn-ssm $code $size $d"
tail -c 3000 "$d/err" | gzip -c | base64 -w 0
echo
head -c {first} "$d/o"
if [ "$size" -le {first} ]; then rm -rf "$d"; fi
"""
_PERSON = """uid=$(id -u -- {user} 2> /dev/null) || uid=0
if [ "$uid" -lt 1000 ] || [ "$uid" -eq 65534 ]; then
  echo {refusal} > "$d/err"
  : > "$d/out"
  code={code}
else
# accounts of a directory get their home at the first login
[ -d "$(getent passwd {user} | cut -d: -f6)" ] || mkhomedir_helper {user} 0077 || :
"""
_HEADER = re.compile(r"^trn-ssm (\d{1,3}) (\d{1,15}) (/tmp/trn-ssm-\w+)$", re.M | re.A)


_SHELL = "exec bash --noprofile --norc <(cat) < /dev/null"
"""Runs the script that it is given."""


class SsmTransport:
    """Runs scripts through AWS Systems Manager: needs no open port and no key."""

    interval = INTERVAL

    def __init__(
        self,
        ssm: SSMClient,
        instance_id: str,
        user: str,
        *,
        person: bool = False,
        s3: S3Client | Callable[[], S3Client] | None = None,
        bucket: str = "",
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] | None = None,
        check: Callable[[], None] | None = None,
    ):
        """Args:
        instance_id: the head node.
        check: is called once, before the first command. It raises a TransportError if that is not the head node.
        user: the jobs' user on it.
        person: whether that is a person, whose account is checked: it must exist and be none of the system's.
        s3, bucket: for payloads that are private or larger than `INLINE`; deleted as soon as they were read. A function creates
            the client on first use.
        say: called with a message if AWS does not respond for a while, or a payload could not be deleted.
        """
        self._ssm, self._instance, self._user, self._person = ssm, instance_id, user, person
        self._s3, self._bucket, self._sleep = s3, bucket, sleep
        self._say, self._check = say or (lambda _: None), check

    @property
    def instance(self) -> str:
        if self._check:
            self._check()
            self._check = None
        return self._instance

    @classmethod
    def of(cls, cluster: SlurmCluster, say: Callable[[str], None] | None = None) -> SsmTransport:
        """The transport for a cluster, with boto3's default credentials.

        Raises:
            TransportError: no credentials or no region were found.
        """
        config = Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=10)  # callers retry

        def client(service: Any) -> Any:
            try:
                return aws_client(service, cluster.region, config=config)
            except BotoCoreError as e:
                raise TransportError(f"cannot use AWS: {e}. Check your credentials and region") from None

        ssm, s3 = client("ssm"), partial(client, "s3")
        person = cluster.for_person
        # a login node of AWS PCS is found by such a tag
        check = partial(check_head_node, cluster) if cluster.engine == SLURM.name else None
        head, user, bucket = cluster.head_node_id, cluster.job_user, cluster.bucket
        return cls(ssm, head, user, person=person, s3=s3, bucket=bucket, say=say, check=check)

    def as_user(self, user: str) -> SsmTransport:
        """The same, for another user of the head node."""
        other = copy.copy(self)
        other._user, other._person = user, False
        return other

    def _store(self) -> S3Client | None:
        """The client of the bucket; None without a bucket."""
        return (self._s3() if callable(self._s3) else self._s3) if self._bucket else None

    def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:
        return self._send(script, _SHELL, timeout, private)

    def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
        """Start this version of the runner as the user, by root, and place it first if it is not there."""
        runner = pyz()
        start, check = transport.start_runner(cluster, runner), transport.is_placed(cluster, runner)
        result = self._send(request, start, timeout, private, check)
        if result.code != transport.NOT_PLACED:
            return result
        try:
            self._place(cluster, transport.place_runner(cluster, runner))
        except BucketError:  # who only looks at jobs may not be allowed to use it
            self._place(cluster, transport.place_runner(cluster, runner, transport.PIECE))
        return self._send(request, start, timeout, private, check)

    def _place(self, cluster: SlurmCluster, scripts: Iterator[str]) -> None:
        for script in scripts:
            placed = self.as_user("root").run(script)
            if placed.code != 0:
                why = " ".join(placed.stderr.split())[-600:] or f"exit code {placed.code}"
                raise TransportError(f"the runner cannot be placed on {cluster.cluster_name}: {why}", again=False)

    def _send(self, given: str, command: str, timeout: float, private: bool, check: str = "") -> Result:
        """Run a command of bash as the user, with this text as its input.

        Args:
            check: beginning of a condition, which root checks before.
        """
        run = partial(self._run, command=command, check=check, timeout=timeout)
        # SSM keeps the text of commands for 30 days, readable for everyone who may list them
        packed = gzip.compress(given.encode(), mtime=0)
        text = base64.b64encode(packed).decode()
        if len(text) <= INLINE and not private:
            return run(f"base64 -d > \"$d/in\" <<'EOF' || fail\n{text}\nEOF")
        s3 = self._store()
        if s3 is None:
            large = f"is too large for one SSM command ({len(text):,} characters)"
            why = "sets variables" if private else large
            raise BucketError(f"the job {why}, and the stack has no bucket to send it through", again=False)
        key = f"{PAYLOADS}{secrets.token_hex(16)}"
        version = self._put(s3, key, packed)
        try:
            return run(self._fetch(s3, key, version, hashlib.sha256(packed).hexdigest()))
        finally:
            self._remove(s3, key, version)

    def _fetch(self, s3: S3Client, key: str, version: str, digest: str) -> str:
        """The commands that fetch a payload: this version of the object, and only with this SHA-256."""
        where = {"region": s3.meta.region_name, "bucket": self._bucket, "version-id": version}
        options = " ".join(f"--{name} {quote.word(value)}" for name, value in where.items() if value)
        refuse = "{ echo 'the payload in the bucket is not the one that was sent' >&2; fail; }"
        return (
            # the key in a file: other users of the node can read command lines
            f'printf %s {quote.word(key)} > "$d/key"\n'
            f'aws s3api get-object {options} --key "file://$d/key" "$d/in" > /dev/null || fail\n'
            f'echo "{digest}  $d/in" | sha256sum --check --status || {refuse}'
        )

    def _run(self, payload: str, *, command: str, check: str, timeout: float) -> Result:
        user = quote.word(self._user)
        refusal = f"there is no user {self._user} on {self._instance}, or it is an account of the system. Correct --user, or add the user and deploy"
        person = _PERSON.format(user=user, refusal=quote.word(refusal), code=NOT_THEIRS) if self._person else ""
        checks = [one for one in (person, check) if one]
        as_user = transport.as_user(self._user, command, "runuser")
        text = _WRAPPER.format(
            payload=payload, as_user=as_user, check="".join(checks), checked="\nfi" * len(checks), first=FIRST_PAGE
        )
        response = self._invoke(text, timeout)
        header = _HEADER.search(response)
        if header is None:
            raise TransportError(f"the head node {self._instance} sent an unexpected response: {response[:200]!r}")
        code, size, folder = int(header[1]), int(header[2]), header[3]
        error, _, output = response[header.end() + 1 :].partition("\n")
        output = output[:size]
        if size > MOST_PACKED:
            self._invoke(f"rm -rf {folder}", 60)
            raise TransportError(f"{_too_large(self._instance)}: {size:,} bytes of it are packed", again=False)
        if size > THROUGH_BUCKET:
            output = self._through_bucket(folder, size) or output
        while len(output) < size:
            end = f"; rm -rf {folder}" if len(output) + PAGE >= size else ""
            page = self._invoke(f"tail -c +{len(output) + 1} {folder}/o | head -c {PAGE}{end}", 60)
            if not page:
                raise TransportError(f"the head node {self._instance} lost part of its response. Try again")
            output += page
        try:
            out, err = unpack(output, MOST), unpack(error, 10_000)
        except SpecError as e:
            if "more than" in str(e):
                raise TransportError(_too_large(self._instance), again=False) from None
            raise TransportError(f"the head node {self._instance} lost part of its response. Try again") from None
        return Result(out.decode(errors="replace"), err.decode(errors="replace"), code)

    def _through_bucket(self, folder: str, size: int) -> str:
        """The whole output, which the head node stores in the bucket for this moment; empty if it, or the caller, may not use the
        bucket."""
        if (s3 := self._store()) is None:
            return ""
        key = f"{RESPONSES}{secrets.token_hex(16)}"
        where = {"region": s3.meta.region_name, "bucket": self._bucket, "body": f"{folder}/o"}
        options = " ".join(f"--{name} {quote.word(value)}" for name, value in where.items())
        stored = self._invoke(
            f"printf %s {quote.word(key)} > {folder}/key; v=$(aws s3api put-object {options} --key file://{folder}/key "
            '--query VersionId --output text 2> /dev/null) && echo "stored $v" || true',
            300,
        )
        if not stored.startswith("stored "):
            return ""
        try:
            found = s3.get_object(Bucket=self._bucket, Key=key)["Body"].read(size + 1).decode("ascii", "replace")
        except (ClientError, BotoCoreError):
            return ""
        finally:
            version = stored.removeprefix("stored ").strip()
            self._remove(s3, key, "" if version == "None" else version)
        self._invoke(f"rm -rf {folder}", 60)
        return found

    def _invoke(self, command: str, timeout: float) -> str:
        """Run one Run Command to its end, and return its output.

        Raises:
            TransportError: it was not delivered, not allowed, or did not end in time.
        """
        try:
            sent = self._ssm.send_command(
                InstanceIds=[self.instance],
                DocumentName="AWS-RunShellScript",
                Parameters={"commands": [command], "executionTimeout": [str(int(timeout))]},
                TimeoutSeconds=60,
                Comment="trn",
            )["Command"]["CommandId"]
            return self._poll(sent, time.monotonic() + timeout + 75)
        except (ClientError, BotoCoreError) as e:
            raise aws_error(e, self._instance) from None

    def _poll(self, command_id: str, deadline: float) -> str:
        pause = 0.1
        answered = time.monotonic()
        tell_at = answered + TELL_SECONDS
        while True:
            self._sleep(pause)
            pause = min(pause * 1.6, 2.0)
            found: dict[str, Any] = {}
            try:
                found = dict(self._ssm.get_command_invocation(CommandId=command_id, InstanceId=self._instance))
                answered, tell_at = time.monotonic(), time.monotonic() + TELL_SECONDS
            except (ClientError, BotoCoreError) as e:
                # not known in all of SSM yet, or the connection was lost: the command goes on
                error, now = aws_error(e, self._instance), time.monotonic()
                if not (isinstance(e, ClientError) and e.response["Error"].get("Code") == "InvocationDoesNotExist"):
                    refused = isinstance(e, ClientError) and now - answered > UNANSWERED_SECONDS
                    if not error.again or refused or now > deadline:
                        raise
                    if now > tell_at:
                        self._say(f"no response from AWS for {now - answered:.0f} s ({error}); still trying")
                        tell_at = now + 30
            status, details = found.get("Status"), found.get("StatusDetails", "")
            if status == "Success":
                return str(found["StandardOutputContent"])
            if status not in (None, "Pending", "InProgress", "Delayed", "Cancelling"):
                last_words = str(found.get("StandardErrorContent", ""))
                raise TransportError(self._failure(str(status), str(details), last_words))
            if time.monotonic() > deadline:
                self._ssm.cancel_command(CommandId=command_id)
                raise TransportError(
                    f"the head node {self._instance} did not answer in time (command {command_id} is cancelled). "
                    "Is it running?"
                )

    def _failure(self, status: str, details: str, error: str) -> str:
        if details.replace(" ", "") in ("DeliveryTimedOut", "Undeliverable"):  # SSM writes them with or without spaces
            return (
                f"the head node {self._instance} did not take the command ({details}). Is it running, and its "
                "SSM agent online?"
            )
        if status == "TimedOut":
            return (
                f"the command on the head node {self._instance} took too long and was stopped. Is Slurm's "
                "controller up (`sinfo`)?"
            )
        agents = "failed to run commands: exit status"  # says no more than the status
        tail = [line for line in error.strip().splitlines() if not line.startswith(agents)][-1:] or [
            "SSM gives no reason"
        ]
        ended = status if details in ("", status) else f"{status} ({details})"
        return f"the command on the head node {self._instance} ended as {ended}: {tail[0][:300]}"

    def _put(self, s3: S3Client, key: str, body: bytes) -> str:
        """Store a payload. Returns its version id; empty in a bucket without versioning."""
        try:
            return s3.put_object(Bucket=self._bucket, Key=key, Body=body).get("VersionId", "")
        except (ClientError, BotoCoreError) as e:
            if not isinstance(e, ClientError):
                self._remove(s3, key, "")  # it may have been stored without a response
            reason = credentials_error(e) or f"{e}. Request the permission s3:PutObject"
            raise BucketError(
                f"cannot send this request through s3://{self._bucket}/{key}: {reason}",
                again=aws_error(e, self._instance).again,
            ) from None

    def _remove(self, s3: S3Client, key: str, version: str) -> None:
        """Delete a payload's version; if that is not allowed, add a delete marker. The bucket's expiry removes the rest."""
        patience = Patience(REMOVE_SECONDS, sleep=self._sleep)
        which: Any = {"VersionId": version} if version else {}
        while True:
            try:
                s3.delete_object(Bucket=self._bucket, Key=key, **which)
                return
            except (ClientError, BotoCoreError) as e:
                error = aws_error(e, self._instance)
                if which and isinstance(e, ClientError) and not error.again:
                    which = {}  # deleting a version needs s3:DeleteObjectVersion
                    continue
                try:
                    patience.failed(error)
                except TransportError:
                    self._say(
                        f"a job's script or log is still in s3://{self._bucket}/{key}: {code_and_message(e)[0] or e}. "
                        "Delete it; the bucket does so after a day"
                    )
                    return


def _too_large(instance: str) -> str:
    return f"the head node {instance} sent more than an answer can be, and it was not read. Ask an administrator to look at that node"


_NOT_NOW = ("NoCredentials", "PartialCredentials", "NoRegion", "Token", "SSO", "CredentialRetrieval", "Profile")


def aws_error(error: Any, instance: str) -> TransportError:
    """An error of boto3 as a TransportError, which knows whether a retry may succeed."""
    if not isinstance(error, ClientError):
        again = not any(mark in type(error).__name__ for mark in _NOT_NOW)
        return TransportError(f"cannot reach AWS Systems Manager: {describe_error(error)}", again=again)
    code, message = code_and_message(error)
    if code == "InvalidInstanceId":
        return TransportError(
            f"SSM does not manage the head node {instance}: it is stopped, deleted, or has just started. Wait a minute, or "
            "check it in the EC2 console; if the stack was deployed again, try again"
        )
    if ended := credentials_error(error):
        return TransportError(ended, again=False)
    if "AccessDenied" in code or "Unauthorized" in code:
        return TransportError(
            f"these credentials may not call ssm:{error.operation_name} on {instance}: {message}. "
            "Request the permissions ssm:SendCommand and ssm:GetCommandInvocation",
            again=False,
        )
    again = "Throttl" in code or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400) >= 500
    return TransportError(
        f"AWS rejected {error.operation_name}: {code}: {message}", again=again or "Limit" in code or "Rate" in code
    )


def find_instances(region: str, what: str, filters: Mapping[str, str]) -> list[dict[str, Any]]:
    """The instances with these filters of EC2.

    Raises:
        TransportError: EC2 cannot be queried. `what`: is looked up.
    """
    wanted: Any = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    try:
        found = aws_client("ec2", region).describe_instances(Filters=wanted)["Reservations"]
    except ClientError as e:
        code = e.response["Error"].get("Code", "")
        denied = ". Request the permission ec2:DescribeInstances" if "Unauthorized" in code else ""
        ended = credentials_error(e)
        raise TransportError(f"cannot look up {what}: {ended or e}{denied}", again=not (denied or ended)) from None
    except BotoCoreError as e:
        raise TransportError(f"cannot look up {what}: {describe_error(e)}") from None
    return [dict(instance) for reservation in found for instance in reservation["Instances"]]


def check_head_node(cluster: SlurmCluster) -> None:
    """Raises TransportError: AWS does not say that the instance of a stack's outputs is the head node of its cluster."""
    tags = {**HEAD_NODE, "aws:cloudformation:stack-name": cluster.cluster_name}
    filters = {"instance-id": cluster.head_node_id, **{f"tag:{key}": value for key, value in tags.items()}}
    if not find_instances(cluster.region, "the head node", filters):
        raise TransportError(
            f"nothing was run on {cluster.head_node_id}: by AWS's own tags it is not the head node of {cluster.cluster_name}. If stack "
            f"{cluster.stack} was deployed just now, try again. Else ask who has made it",
            again=False,
        )


class LoginNodeTransport:
    """Runs scripts on the running login node, through SSM. It is looked up again after a failure: PCS may have replaced it."""

    interval = INTERVAL

    def __init__(self, cluster: PcsCluster, say: Callable[[str], None] | None = None):
        self._cluster, self._say = cluster, say
        self._ssm: SsmTransport | None = None

    @property
    def instance(self) -> str:
        return login_node(self._cluster)

    def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:
        with self._node() as node:
            return node.run(script, timeout, private)

    def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
        with self._node() as node:
            return node.ask(cluster, request, timeout, private)

    @contextmanager
    def _node(self) -> Iterator[SsmTransport]:
        if self._ssm is None:
            node = login_node(self._cluster)
            self._ssm = SsmTransport.of(self._cluster.model_copy(update={"head_node_id": node}), self._say)
        try:
            yield self._ssm
        except TransportError:
            self._ssm = None
            raise


def login_node(cluster: PcsCluster) -> str:
    """EC2 instance id of the login node that has run longest.

    Raises:
        TransportError: none runs, or EC2 cannot be queried.
    """
    filters = {f"tag:{GROUP_TAG}": cluster.login_group_id, "instance-state-name": "running"}
    nodes = find_instances(cluster.region, "the login node", filters)
    if not nodes:
        raise TransportError(
            f"no login node of {cluster.cluster_name} is running (node group {cluster.login_group_id}): PCS starts one within minutes. "
            "If none comes, read the group's errors: aws pcs get-compute-node-group --cluster-identifier "
            f"{cluster.cluster_id} --compute-node-group-identifier {cluster.login_group_id} --region {cluster.region}"
        )
    return str(min(nodes, key=lambda node: node["LaunchTime"])["InstanceId"])
