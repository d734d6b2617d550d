"""The Price List: boto3 gets responses in the form of recorded ones, without a connection; a test can change them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from trainium_cdk.checks.live import aws as connection

Document = dict[str, Any]
DOCUMENTS: list[Document] = [
    json.loads(line) for line in Path(__file__).with_name("price_list.jsonl").read_text().splitlines()
]
"""What GetProducts has for the requests of `trn`, in us-east-1 and us-west-2; the form is that of responses of 2026-08-10."""


class PriceList:
    """Responses to DescribeServices and GetProducts.

    Args:
        prices: other prices in USD, by usage type.
        products: more of them, as `product` makes them.
        without: usage types that are missing.
        page: products of a response.
        throttled: number of requests of a service that are refused first.
        allowed: actions that the caller may use.
    """

    def __init__(
        self,
        *,
        prices: dict[str, str] | None = None,
        products: tuple[Document, ...] = (),
        without: str = "",
        page: int = 100,
        throttled: dict[str, int] | None = None,
        allowed: tuple[str, ...] = ("DescribeServices", "GetProducts"),
    ) -> None:
        self._allowed = allowed
        self._page, self._throttled = page, dict(throttled or {})
        self._documents = [*products]
        for document in DOCUMENTS:
            usage = re.sub("^US[EW][12]-", "", document["product"]["attributes"]["usagetype"])
            if usage != without:
                self._documents.append(_priced(document, (prices or {}).get(usage)))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the clients that `trn` makes get these responses."""
        real = connection.Aws._client

        def client(aws: connection.Aws, service: str, region: str) -> Any:
            made = real(aws, service, region)
            if service == "pricing":
                made.meta.events.register("before-send.pricing", self._send, unique_id="recorded")
            return made

        monkeypatch.setattr(connection.Aws, "_client", client)

    def _send(self, request: Any, **_: Any) -> AWSResponse:
        action = request.headers["X-Amz-Target"].decode().partition(".")[2]
        status, answer = self._answer(action, json.loads(request.body))
        return AWSResponse(request.url, status, {}, _Raw(json.dumps(answer).encode()))

    def _answer(self, action: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if action not in self._allowed:
            return 400, {"__type": "AccessDeniedException", "Message": f"not authorized to perform: pricing:{action}"}
        if action == "DescribeServices":
            codes = sorted({document["serviceCode"] for document in self._documents})
            return 200, {"Services": [{"ServiceCode": code} for code in codes], "FormatVersion": "aws_v1"}
        service = asked["ServiceCode"]
        if self._throttled.get(service, 0):
            self._throttled[service] -= 1
            return 400, {"__type": "ThrottlingException", "Message": "Rate exceeded"}
        wanted = {rule["Field"]: rule["Value"] for rule in asked["Filters"]}
        found = [json.dumps(one) for one in self._documents if one["serviceCode"] == service and _fits(one, wanted)]
        first = int(asked.get("NextToken", 0))
        more = {"NextToken": str(first + self._page)} if first + self._page < len(found) else {}
        return 200, {"PriceList": found[first : first + self._page], "FormatVersion": "aws_v1", **more}


class _Raw(io.BytesIO):
    def stream(self, **_: Any) -> Any:
        yield self.read()


def product(service: str, usage: str, unit: str, price: str, text: str = "", **attributes: str) -> Document:
    """A product in us-east-1."""
    rate = {"unit": unit, "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": price}, "description": text}
    return {
        "product": {"attributes": {"regionCode": "us-east-1", "usagetype": usage, **attributes}, "sku": usage},
        "serviceCode": service, "publicationDate": "2026-07-13T18:00:00Z",
        "terms": {"OnDemand": {"S.T": {"priceDimensions": {"S.T.R": rate}, "effectiveDate": "2026-07-01T00:00:00Z"}}},
    }  # fmt: skip


def _fits(document: Document, wanted: dict[str, str]) -> bool:
    has = {"productFamily": document["product"].get("productFamily"), **document["product"]["attributes"]}
    return all(has.get(field) == value for field, value in wanted.items())


def _priced(document: Document, price: str | None) -> Document:
    if price is None:
        return document
    copy: Document = json.loads(json.dumps(document))
    for term in copy["terms"]["OnDemand"].values():
        for rate in term["priceDimensions"].values():
            rate["pricePerUnit"] = {"USD": price}
    return copy
