"""The function that serves custom resources: each type has its function, and CloudFormation gets a response, whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from aws_cdk import App, Stack
from botocore.exceptions import ClientError

from trainium_cdk.cdk.bucket import TrnBucket
from trainium_cdk.cdk.deployment import function, nodes
from trainium_cdk.cdk.deployment.request import Request, Response

PACKAGE = Path(function.__file__).parent
EVENT = {
    "StackId": "stack", "RequestId": "r-1", "LogicalResourceId": "It", "RequestType": "Create",
    "ResourceType": "Custom::TrnNodeGroupSize",
    "ResourceProperties": {"ServiceToken": "t", "Min": "0", "Max": "4", "Nodes": "2"},
}  # fmt: skip


@pytest.fixture
def cloudformation() -> Iterator[tuple[str, list[Any]]]:
    """The address where CloudFormation waits for a response, and what was sent."""
    got: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            assert not self.headers["Content-Type"], "the signature of the address includes it"
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", got
    server.shutdown()
    thread.join()
    server.server_close()


def denied(code: str = "AccessDenied") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "not authorized"}}, "CopyObject")


def call(cloudformation: tuple[str, list[Any]], **changes: Any) -> dict[str, Any]:
    url, got = cloudformation
    function.handler({**EVENT, **changes, "ResponseURL": url}, None)
    [answer] = got
    assert isinstance(answer, dict)
    assert {key: answer[key] for key in ("StackId", "RequestId", "LogicalResourceId")} == {
        "StackId": "stack", "RequestId": "r-1", "LogicalResourceId": "It",
    }  # fmt: skip
    return answer


def test_a_response_has_attributes_and_an_id(cloudformation: Any) -> None:
    answer = call(cloudformation)
    assert (answer["Status"], answer["PhysicalResourceId"], answer["Data"]) == ("SUCCESS", "size", {"Nodes": 2})


@pytest.mark.parametrize(
    ("changes", "reason", "physical_id"),
    [
        ({"ResourceProperties": {}}, "'Min'", "not-created"),
        ({"RequestType": "Update", "PhysicalResourceId": "old", "ResourceProperties": {}}, "'Min'", "old"),
        ({"ResourceType": "Custom::Other"}, "'Custom::Other'", "not-created"),
    ],
)
def test_an_error_is_reported_with_its_reason(
    cloudformation: Any, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], reason: str, physical_id: str
) -> None:
    answer = call(cloudformation, **changes)
    assert (answer["Status"], answer["Reason"], answer["PhysicalResourceId"]) == ("FAILED", reason, physical_id)
    kind = changes.get("RequestType", EVENT["RequestType"])
    assert f" {kind}: KeyError: {reason}\n" in capsys.readouterr().out, "in the function's log"


@pytest.mark.parametrize(
    ("errors", "status", "calls"),
    [
        (
            [denied(code) for code in ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")],
            "SUCCESS",
            5,
        ),
        ([denied()] * 100, "FAILED", 14),
        ([denied("NoSuchKey")], "FAILED", 1),
        ([ValueError("x" * 9000)], "FAILED", 1),
    ],
    ids=["a policy that is not yet effective", "not permitted", "another error", "a long text"],
)
def test_a_new_permission_is_waited_for(
    cloudformation: Any, monkeypatch: pytest.MonkeyPatch, errors: list[Exception], status: str, calls: int
) -> None:
    made, now, left = [], [0.0], list(errors)

    def respond(request: Request, _client: object) -> Response:
        made.append(request)
        if left:
            raise left.pop(0)
        return Response("it")

    monkeypatch.setitem(function.RESPOND, "Custom::TrnNodeScripts", respond)
    monkeypatch.setattr(function.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(function.time, "monotonic", lambda: now[0])
    answer = call(cloudformation, ResourceType="Custom::TrnNodeScripts")
    assert (answer["Status"], len(made)) == (status, calls)
    assert answer.get("Reason") in (None, str(errors[0])[:1000]), "CloudFormation takes 4096 bytes"


@pytest.mark.parametrize(("kind", "copies"), [("Create", 2), ("Update", 2), ("Delete", 0)])
def test_node_scripts_are_copied_and_never_deleted(kind: str, copies: int) -> None:
    made: list[dict[str, Any]] = []
    objects = [{"Source": "assets/deep/a.zip", "Key": "a"}, {"Source": "assets/b", "Key": "c"}]
    request = Request(kind, "stack", {"Bucket": "mine", "Objects": objects}, None if kind == "Create" else "as-before")
    s3 = SimpleNamespace(copy_object=lambda **call: made.append(call))
    clients = {"s3": s3}
    assert nodes.copy_scripts(request, clients.__getitem__).physical_id == (request.physical_id or "node-scripts")
    assert (
        made
        == [
            {"Bucket": "mine", "Key": "a", "CopySource": {"Bucket": "assets", "Key": "deep/a.zip"}},
            {"Bucket": "mine", "Key": "c", "CopySource": {"Bucket": "assets", "Key": "b"}},
        ][:copies]
    )


def test_every_type_of_the_constructs_has_a_function() -> None:
    sources = [p.read_text("utf-8") for p in PACKAGE.parent.rglob("*.py") if PACKAGE not in p.parents]
    for kind in function.RESPOND:
        assert any(f'"{kind.removeprefix("Custom::")}"' in text for text in sources), kind
    signature = "(request: Request, client: Client) -> Response:"
    assert len(function.RESPOND) == sum(p.read_text("utf-8").count(signature) for p in PACKAGE.glob("*.py"))


def test_a_stack_has_one_function_with_nothing_but_its_code(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), builtin_cloud_formation_validation=False)
    stack = Stack(app, "S")
    for id in ("One", "Two"):
        TrnBucket(stack, id)
    assembly = app.synth()
    template = json.loads((Path(assembly.directory) / "S.template.json").read_text("utf-8"))
    [found] = [r for r in template["Resources"].values() if r["Type"] == "AWS::Lambda::Function"]
    [folder] = [tmp_path / p.name for p in tmp_path.glob("asset.*") if p.is_dir()]
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == {f"deployment/{p.name}" for p in PACKAGE.glob("*.py")}
    module = found["Properties"]["Handler"].rpartition(".")[0]
    assert f"{module.replace('.', '/')}.py" in files
    # as Lambda does: the package is on the path, and the library is not there
    command = f"import sys; sys.modules['trainium_cdk'] = None; import {module} as m; m.handler"
    subprocess.run([sys.executable, "-c", command], cwd=folder, check=True)
