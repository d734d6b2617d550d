"""Immediate responses of AWS, which are counted, for `trn list`, `status` and `submit`. CloudFormation describes one Slurm stack; the runner on its
head node answers with one job."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from trainium_cdk.client.jobs.status import JobStatus, Stage
from trainium_cdk.description.outputs import CONTRACT, CONTRACT_KEY, Fleet, SlurmCluster
from trainium_cdk.runner.requests import Outcome
from trainium_cdk.runner.spec import to_json

JOB = "bert-large-benchmark"
_FLEET = Fleet(
    queue="compute1",
    resource="trn",
    instance_type="trn1.32xlarge",
    nodes=16,
    devices=16,
    cores=32,
    efa=8,
    family="trn1",
)
CLUSTER = SlurmCluster(
    stack="TrnPclusterStack",
    region="us-west-2",
    cluster_name="trn-slurm",
    shared_dir="/efs",
    mount_dirs=("/efs",),
    kernel="6.8",
    neuron_driver="2.26.10.0",
    neuron_release="2.28.0",
    framework="torch-xla",
    os="ubuntu2404",
    bucket="benchmark",
    head_node_id="i-0123456789abcdef0",
    job_user="ubuntu",
    venv="aws_neuron_venv",
    fleets=(_FLEET,),
)
_STATUS = to_json(
    JobStatus(
        JOB, "bert-large", "compute1", "trn1.32xlarge", 2, 256, (Stage("train", "7", "RUNNING", nodes="trn-[1-2]"),)
    )
)
ANSWERS = {
    "list": [_STATUS],
    "status": _STATUS,
    "submit": [to_json(Outcome({"train": "7"}))],
}
"""The runner's answers, by the command that asks."""


def outputs() -> dict[str, str]:
    """The stack's outputs."""
    values = {key: getattr(CLUSTER, name) for key, (name, _) in SlurmCluster.keys.items()}
    values |= {"MountDirs": ",".join(CLUSTER.mount_dirs), CONTRACT_KEY: CONTRACT, "TrnEngine": "slurm"}
    return {key: value or "-" for key, value in values.items()} | {"Fleet0": _FLEET.model_dump_json()}


def _stacks() -> str:
    members = "".join(
        f"<member><OutputKey>{key}</OutputKey><OutputValue>{escape(value)}</OutputValue></member>"
        for key, value in outputs().items()
    )
    return (
        '<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult><Stacks><member>'
        f"<StackName>{CLUSTER.stack}</StackName><CreationTime>2026-11-24T07:00:00Z</CreationTime>"
        f"<StackStatus>CREATE_COMPLETE</StackStatus><Outputs>{members}</Outputs>"
        "</member></Stacks></DescribeStacksResult></DescribeStacksResponse>"
    )


def _instances() -> str:
    """That the head node is the cluster's."""
    return (
        '<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet><item><instancesSet><item>'
        f"<instanceId>{CLUSTER.head_node_id}</instanceId>"
        "</item></instancesSet></item></reservationSet></DescribeInstancesResponse>"
    )


def _head_node(command: str) -> str:
    said = json.dumps({"answer": ANSWERS[command]})
    output, error = (base64.b64encode(gzip.compress(text.encode())).decode() for text in (said, ""))
    return f"trn-ssm 0 {len(output)} /tmp/trn-ssm-x\n{error}\n{output}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []
    command_of_trn: ClassVar[str] = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        target = self.headers.get("X-Amz-Target", "").removeprefix("AmazonSSM.")
        self.asked.append(target or parse_qs(body)["Action"][0])
        if target == "SendCommand":
            self._respond(json.dumps({"Command": {"CommandId": "c" * 36}}), "application/x-amz-json-1.1")
        elif target == "GetCommandInvocation":
            found = {
                "Status": "Success",
                "StatusDetails": "Success",
                "StandardOutputContent": _head_node(self.command_of_trn),
            }
            self._respond(json.dumps(found), "application/x-amz-json-1.1")
        elif parse_qs(body).get("Action") == ["DescribeStacks"]:
            self._respond(_stacks(), "text/xml")
        elif parse_qs(body).get("Action") == ["DescribeInstances"]:
            self._respond(_instances(), "text/xml")
        else:
            self.send_error(400)

    def _respond(self, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@contextmanager
def serving(command: str) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The environment of a command of `trn`, and the requests that it has made."""
    _Handler.command_of_trn = command
    _Handler.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_REGION": CLUSTER.region,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        yield environment, _Handler.asked
    finally:
        server.shutdown()
        server.server_close()
