"""Calls ministack's EC2 inside its process, and formats EC2's responses.

CloudFormation handlers call the EC2 actions, so that templates and API calls have the same
checks and records.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from ministack.services import ec2

Response = tuple[int, dict[str, str], bytes]


class ApiError(Exception):
    """An AWS error: its code and message."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{message} ({code})")
        self.code, self.message, self.status = code, message, status


def flatten(params: Mapping[str, Any], prefix: str = "") -> dict[str, list[str]]:
    """The query protocol's flat form: lists become `.1`, `.2`, maps become dotted names; None is omitted."""
    flat: dict[str, list[str]] = {}
    for name, value in params.items():
        key = f"{prefix}{name}"
        if value is None:
            continue
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{key}."))
        elif isinstance(value, list):
            flat.update(flatten({str(number): item for number, item in enumerate(value, 1)}, f"{key}."))
        else:
            flat[key] = [str(value).lower() if isinstance(value, bool) else str(value)]
    return flat


def call_ec2(action: str, **params: Any) -> ElementTree.Element:
    """Call an EC2 action inside the emulator; returns the response without namespaces.

    Raises ApiError with EC2's code and message.
    """
    status, _, body = ec2._ACTION_MAP[action](flatten(params))
    text = body.decode() if isinstance(body, bytes) else body
    root = ElementTree.fromstring(re.sub(r'\sxmlns="[^"]*"', "", text))  # noqa: S314 - our own emulator's answer
    if status >= 400:
        raise ApiError(root.findtext(".//Code") or "InternalError", root.findtext(".//Message") or text, int(status))
    return root


def text_of(root: ElementTree.Element, tag: str) -> str:
    """The text of the first `tag` below `root`; KeyError if there is none."""
    found = root.findtext(f".//{tag}")
    if found is None:
        raise KeyError(f"no <{tag}> in the emulator's response")
    return found


@functools.lru_cache(maxsize=1)
def _ec2_model() -> Any:
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return ServiceModel(Loader().load_service_model("ec2", "service-2"), "ec2")


def ec2_response(action: str, answer: Mapping[str, Any]) -> Response:
    """`answer` (in boto3's form) in EC2's wire format, according to botocore's model of the action."""
    shape = _ec2_model().operation_model(action).output_shape
    body = _render_members(shape, answer)
    xml = (
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response '
        f'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>{uuid.uuid4()}</requestId>'
        f"{body}</{action}Response>"
    )
    return 200, {"Content-Type": "text/xml"}, xml.encode()


def ec2_error(error: ApiError) -> Response:
    """`error` in EC2's wire format."""
    response: Response = ec2._error(error.code, error.message, error.status)
    return response


def _render_members(shape: Any, value: Mapping[str, Any]) -> str:
    return "".join(
        _render(member, member.serialization.get("name", name), value[name])
        for name, member in shape.members.items()
        if value.get(name) is not None
    )


def _render(shape: Any, tag: str, value: Any) -> str:
    if shape.type_name == "structure":
        inner = _render_members(shape, value)
    elif shape.type_name == "list":
        inner = "".join(_render(shape.member, shape.member.serialization.get("name", "item"), item) for item in value)
    elif shape.type_name == "boolean":
        inner = "true" if value else "false"
    else:
        inner = escape(str(value))
    return f"<{tag}>{inner}</{tag}>"
