"""Run Command for head nodes, on this machine.

A command for a head node runs here, in a shell with the environment in the file `clusters/<cluster>/node.json` in the
sandbox's folder: `{"env": {...}, "cwd": "...", "inside": [...]}`, the last one words that come before it. It is written when a Slurm is attached to the cluster, and read for each
command; without it the command fails with that reason.
AWS's limits apply: 24,000 characters of output, 8,000 of error output, 2,500 in the listing, and five commands at a time on a node.

If the sandbox's folder has a file `run-command.json`, no command runs: each gets that result, for example
`{"Status": "TimedOut", "StatusDetails": "Delivery Timed Out"}`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from ministack.core.responses import error_response_json, get_region, json_response
from ministack.services import ec2, ssm

from sandbox.emulator import pcs
from sandbox.emulator.query import Response
from sandbox.emulator.session_manager import Gateway, Session

_AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-{}-x86_64"
"""Amazon's newest image; the CDK's own `latest_amazon_linux2023` names its kernel."""
_LISTED_OUTPUT = 2500
_GRACE_S = 60.0
WORKERS = 5
"""Commands that run on a node at a time: `CommandWorkersLimit` of the agent's configuration; this is its default (amazon-ssm-agent,
README.md and agent/appconfig/constants.go of 2024-10-21). The agent keeps five more, and the service the rest."""
_workers: dict[str, threading.BoundedSemaphore] = defaultdict(lambda: threading.BoundedSemaphore(WORKERS))
_running: dict[tuple[str, str], subprocess.Popen[str]] = {}
_cancelled: set[tuple[str, str]] = set()


def _cluster_of(instance_id: str) -> str | None:
    """The cluster whose head node, or PCS login node, this running instance is, or None."""
    instance = ec2._instances.get(instance_id)
    if not instance or instance["State"]["Name"] != "running":
        return None
    tags = {tag["Key"]: tag["Value"] for tag in ec2._tags.get(instance_id) or []}
    if tags.get("parallelcluster:node-type") != "HeadNode":
        return pcs.login_node_of(instance_id) if pcs.CLUSTER_TAG in tags else None
    return tags.get("parallelcluster:cluster-name")


def _node(cluster: str) -> dict[str, Any]:
    """The head node's environment; FileNotFoundError if no Slurm is attached."""
    path = Path(os.environ["SANDBOX_DIR"]) / "clusters" / cluster / "node.json"
    if not path.is_file():
        raise FileNotFoundError(f"no Slurm is attached to cluster {cluster}: {path} does not exist")
    node: dict[str, Any] = json.loads(path.read_text())
    return node


def _environment(node: dict[str, Any], region: str | None = None) -> dict[str, str]:
    """Variables of a shell on the head node: the instance's role (here the emulator's keys), then the node's own.

    Args:
        region: the cluster's, which is not always the emulator's. Default: of the request.
    """
    region = region or get_region()
    base = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    role = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    role.update(AWS_REGION=region, AWS_DEFAULT_REGION=region)
    return {**base, "HOME": os.environ["SANDBOX_DIR"], **role, **node.get("env", {})}


def _stop(process: subprocess.Popen[str]) -> None:
    """End a command and its process group."""
    for end in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, end)
            process.wait(_GRACE_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return


def _execute(key: tuple[str, str], argv: list[str], seconds: float, folder: str | None) -> tuple[str, int, str, str]:
    """Run a command; returns status, exit code, output and error output."""
    cluster = _cluster_of(key[1])
    if cluster is None:
        return "Failed", 255, "", f"{key[1]} is not a running head node"
    try:
        node = _node(cluster)
        process = subprocess.Popen(
            [*node.get("inside", []), *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env=_environment(node), cwd=folder or node.get("cwd"), start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return "Failed", 1, "", str(error)
    _running[key] = process
    if key in _cancelled:  # cancelled before the process existed
        _stop(process)
    try:
        output, complaints = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _stop(process)
        output, complaints = process.communicate()
        return "TimedOut", -1, output, complaints
    finally:
        _running.pop(key, None)
    if key in _cancelled:
        return "Cancelled", -1, output, complaints
    if process.returncode:
        complaints += f"failed to run commands: exit status {process.returncode}"
        return "Failed", process.returncode, output, complaints
    return "Success", 0, output, complaints


def finish_invocation(command_id: str, instance_id: str, argv: list[str]) -> None:
    """Update an invocation until its command has run, once the node has a worker for it; runs on its own thread."""
    record = ssm._commands.get(command_id)
    invocation = (record or {}).get("Invocations", {}).get(instance_id)
    if record is None or invocation is None:
        return
    if not _workers[instance_id].acquire(timeout=float(record["TimeoutSeconds"])):
        invocation.update(StatusDetails="Delivery Timed Out", Status="TimedOut")
        _roll_up(record)
        return
    try:
        _run(record, invocation, command_id, instance_id, argv)
    finally:
        _workers[instance_id].release()


def _run(
    record: dict[str, Any], invocation: dict[str, Any], command_id: str, instance_id: str, argv: list[str]
) -> None:
    key = (command_id, instance_id)
    outcome = Path(os.environ["SANDBOX_DIR"]) / "run-command.json"
    if outcome.is_file():
        invocation.update(json.loads(outcome.read_text()))
    elif key not in _cancelled:
        invocation.update(Status="InProgress", StatusDetails="InProgress", ExecutionStartDateTime=ssm._now_iso())
        began = time.monotonic()
        parameters = record.get("Parameters") or {}
        seconds = float((parameters.get("executionTimeout") or ["3600"])[0])
        folder = (parameters.get("workingDirectory") or [""])[0]
        status, code, output, complaints = _execute(key, argv, seconds, folder or None)
        invocation.update(
            ResponseCode=code,
            StandardOutputContent=output[: ssm._STDOUT_LIMIT],
            StandardErrorContent=complaints[: ssm._STDERR_LIMIT],
            ExecutionElapsedTime=f"PT{time.monotonic() - began:.3f}S",
            ExecutionEndDateTime=ssm._now_iso(),
            StatusDetails="Execution Timed Out" if status == "TimedOut" else status,
        )
        invocation["Status"] = status  # last, so that the output is complete with a final status
    else:
        invocation.update(StatusDetails="Cancelled", Status="Cancelled")
    _roll_up(record)


def _roll_up(record: dict[str, Any]) -> None:
    """ministack's summary, with the states that it lacks."""
    ssm._refresh_command_status(record)
    states = {invocation["Status"] for invocation in record["Invocations"].values()}
    for state in ("TimedOut", "Cancelled"):
        if state in states and record["Status"] == "Success":
            record["Status"] = record["StatusDetails"] = state


def cancel_command(data: dict[str, Any]) -> Response:
    """Stop the running invocations of a command; finished ones are unchanged."""
    command_id = data.get("CommandId") or ""
    record = ssm._commands.get(command_id)
    if not record:
        response: Response = error_response_json("InvalidCommandId", f"{command_id} is not a valid command id", 400)
        return response
    for instance_id in data.get("InstanceIds") or list(record["Invocations"]):
        key = (command_id, instance_id)
        if record["Invocations"].get(instance_id, {}).get("Status") in ("Pending", "InProgress"):
            _cancelled.add(key)
            process = _running.get(key)
            if process:
                os.killpg(process.pid, signal.SIGTERM)
    done: Response = json_response({})
    return done


def list_command_invocations(data: dict[str, Any]) -> Response:
    """Invocations by command or instance; with Details, each with its plugin's output."""
    found = []
    for record in ssm._commands.values():
        if data.get("CommandId") and record["CommandId"] != data["CommandId"]:
            continue
        for instance_id, invocation in record["Invocations"].items():
            if data.get("InstanceId") and instance_id != data["InstanceId"]:
                continue
            listed = {
                "CommandId": record["CommandId"], "InstanceId": instance_id, "Comment": record["Comment"],
                "DocumentName": record["DocumentName"], "RequestedDateTime": record["RequestedDateTime"],
                "Status": invocation["Status"], "StatusDetails": invocation["StatusDetails"],
                "CommandPlugins": [],
            }  # fmt: skip
            if data.get("Details"):
                output = invocation["StandardOutputContent"]
                if invocation["StandardErrorContent"]:
                    output += "\n----------ERROR-------\n" + invocation["StandardErrorContent"]
                listed["CommandPlugins"] = [
                    {
                        "Name": invocation["PluginName"],
                        "Status": invocation["Status"],
                        "StatusDetails": invocation["StatusDetails"],
                        "ResponseCode": invocation["ResponseCode"],
                        "Output": output[:_LISTED_OUTPUT],
                    }
                ]
            found.append(listed)
    response: Response = json_response({"CommandInvocations": found})
    return response


_PORTS = {
    "AWS-StartPortForwardingSession": {"portNumber", "localPortNumber"},
    "AWS-StartPortForwardingSessionToRemoteHost": {"host", "portNumber", "localPortNumber"},
}
"""Documents that forward a port, with their parameters."""
_COMMAND = "AWS-StartInteractiveCommand"
_SHELL = "SSM-SessionManagerRunShell"


@functools.cache
def _gateway() -> Gateway:
    return Gateway()


def start_session(data: dict[str, Any]) -> Response:
    """Start a session with a running instance, for session-manager-plugin."""
    target, document = str(data.get("Target")), str(data.get("DocumentName") or _SHELL)
    given = {name: values[0] for name, values in (data.get("Parameters") or {}).items()}
    instance = ec2._instances.get(target)
    refused: Response
    if not instance or instance["State"]["Name"] != "running":
        refused = error_response_json("TargetNotConnected", f"{target} is not connected.", 400)
        return refused
    if document not in (*_PORTS, _COMMAND, _SHELL):
        refused = error_response_json("InvalidDocument", f"Document with name {document} does not exist.", 400)
        return refused
    known = _PORTS.get(document, {"command"} if document == _COMMAND else set())
    if given.keys() - known:
        refused = error_response_json(
            "InvalidParameters", f"Parameters {sorted(given)} are not parameters of {document}.", 400
        )
        return refused
    properties = {"host": "127.0.0.1", **given, "type": "LocalPortForwarding"} if document in _PORTS else {}
    kind = "Port" if document in _PORTS else "InteractiveCommands" if document == _COMMAND else "Standard_Stream"
    session = Session(
        target, document, kind, properties, functools.partial(_program, target, given.get("command"), get_region())
    )
    started: Response = json_response(
        {"SessionId": session.id, "TokenValue": session.token, "StreamUrl": _gateway().add(session)}
    )
    return started


def _program(instance: str, command: str | None, region: str) -> tuple[list[str], dict[str, str], str | None]:
    """What runs in a session's terminal on a head node: a shell, or a command.

    Raises:
        ValueError: it is none.
        FileNotFoundError: no Slurm is attached.
    """
    cluster = _cluster_of(instance)
    if cluster is None:
        raise ValueError(f"{instance} is not a running head node")
    node = _node(cluster)
    words = ["sh", "-c", command] if command else ["bash", "--noprofile", "--norc"]
    return [*node.get("inside", []), *words], _environment(node, region), node.get("cwd")


def terminate_session(data: dict[str, Any]) -> Response:
    session = str(data.get("SessionId"))
    if not _gateway().end(session):
        refused: Response = error_response_json("DoesNotExistException", f"{session} does not exist.", 400)
        return refused
    ended: Response = json_response({"SessionId": session})
    return ended


def describe_sessions(_: dict[str, Any]) -> Response:
    """The sessions that have not ended."""
    listed: Response = json_response(
        {
            "Sessions": [
                {"SessionId": s.id, "Target": s.target, "Status": "Connected", "DocumentName": s.document}
                for s in _gateway().sessions.values()
            ]
        }
    )
    return listed


def stop_running() -> None:
    """End running commands: they are in their own process sessions and would outlive the emulator."""
    for process in list(_running.values()):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


_ACTIONS = {
    "CancelCommand": cancel_command,
    "DescribeSessions": describe_sessions,
    "ListCommandInvocations": list_command_invocations,
    "StartSession": start_session,
    "TerminateSession": terminate_session,
}


def install() -> None:
    """Replace ministack's container-based execution, and add the missing actions."""
    answer = ssm.handle_request

    async def handle_request(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:
        action = headers.get("x-amz-target", "").rpartition(".")[2]
        if action in _ACTIONS:
            return _ACTIONS[action](json.loads(body or b"{}"))
        return await answer(method, path, headers, body, query)

    known = ssm._PUBLIC_AMI_PARAMETERS
    known[_AL2023.format("6.1")] = known[_AL2023.format("default")]
    atexit.register(stop_running)
    ssm.handle_request = handle_request
    ssm._finish_invocation = finish_invocation
    ec2.instance_is_managed = lambda instance_id: _cluster_of(instance_id) is not None
