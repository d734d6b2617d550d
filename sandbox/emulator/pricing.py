"""The AWS Price List: DescribeServices and GetProducts, in the three regions that have an endpoint.

Requests are checked with botocore's model; service codes and filter fields that no product has are refused. The products are those that
the project asks for, in us-east-1 and us-west-2, among others that are easily taken for them, with prices of 2026-07 to 2026-09; the documents
have the form of recorded responses of 2026-08-10. `price-list.json` in the sandbox's folder changes them from then on: `page` (products
of a response), `throttled` (requests by service code that are refused first), `products` (more of them, as PRODUCTS), `without`
(usage types that are missing), `prices` (USD by usage type).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from ministack.core.responses import get_region

from sandbox.emulator import service_model
from sandbox.emulator.query import ApiError, Response

Data = dict[str, Any]
TARGET = "AWSPriceListService."
ENDPOINTS = ("us-east-1", "eu-central-1", "ap-south-1")
LOCATIONS = {"us-east-1": ("US East (N. Virginia)", "USE1"), "us-west-2": ("US West (Oregon)", "USW2")}
PUBLISHED = {
    "AmazonEC2": "2026-08-10T21:57:58Z",
    "AmazonVPC": "2026-09-17T15:02:11Z",
    "AmazonEKS": "2026-09-18T09:21:57Z",
}
TERM, RATE = "JRTCKXETXF", "6YS6EN2CT7"
_LINUX = {
    "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "licenseModel": "No License required",
    "capacitystatus": "Used", "operation": "RunInstances", "marketoption": "OnDemand",
}  # fmt: skip
_LUSTRE = {
    "fileSystemType": "Lustre",
    "storageType": "SSD",
    "operation": "CreateFileSystem:Lustre",
    "deploymentOption": "Single-AZ",
}


def _instance(kind: str, price: str, usage: str = "BoxUsage", **other: str) -> Data:
    return {
        "service": "AmazonEC2", "family": "Compute Instance", "usage": f"{usage}:{kind}", "unit": "Hrs", "price": price,
        "attributes": {"instanceType": kind, **_LINUX, **other},
    }  # fmt: skip


def _product(service: str, family: str, usage: str, unit: str, price: Any, **attributes: str) -> Data:
    return {
        "service": service,
        "family": family,
        "usage": usage,
        "unit": unit,
        "price": price,
        "attributes": attributes,
    }


# `prefix` False: no region in front of the usage type in us-east-1, as for EC2 and CloudWatch
PRODUCTS: list[Data] = [
    *(_instance(kind, price) for kind, price in (
        ("trn1.2xlarge", "1.3437500000"), ("trn1.32xlarge", "21.5000000000"), ("trn1n.32xlarge", "24.7800000000"),
        ("c5.2xlarge", "0.3400000000"), ("c5.4xlarge", "0.6800000000"), ("m5.large", "0.0960000000"), ("r5.large", "0.1260000000"), ("t3.micro", "0.0104000000"),
    )),
    *(_instance(kind, "0.0000000000", marketoption="CapacityBlock") for kind in ("trn1.32xlarge", "trn2.3xlarge", "trn2.48xlarge")),
    _instance("trn1.32xlarge", "0.0000000000", "Reservation", capacitystatus="AllocatedCapacityReservation"),
    _instance("trn1.32xlarge", "21.5000000000", "UnusedBox", capacitystatus="UnusedCapacityReservation"),
    _instance("trn1.32xlarge", "23.6500000000", "DedicatedUsage", tenancy="Dedicated"),
    _instance("m5.large", "0.1880000000", operatingSystem="Windows", licenseModel="No License required"),
    _instance("m5.large", "0.5760000000", preInstalledSw="SQL Std"),
    _product("AmazonEC2", "NAT Gateway", "NatGateway-Hours", "Hrs", "0.0450000000", group="NGW:NatGateway", operation="NatGateway"),
    _product("AmazonEC2", "NAT Gateway", "NatGateway-Bytes", "GB", "0.0450000000", group="NGW:NatGateway", operation="NatGateway"),
    _product("AmazonEC2", "NAT Gateway", "RegionalNatGateway-Hours", "Hrs", "0.0500000000", group="NGW:NatGateway", operation="NatGateway"),
    _product("AmazonEC2", "Storage", "EBS:VolumeUsage.gp3", "GB-Mo", "0.0800000000", volumeApiName="gp3", volumeType="General Purpose"),
    _product("AmazonEC2", "Storage", "EBS:VolumeUsage.gp2", "GB-Mo", "0.1000000000", volumeApiName="gp2", volumeType="General Purpose"),
    _product("AmazonEC2", "System Operation", "EBS:VolumeP-IOPS.gp3", "IOPS-Mo", "0.0050000000", volumeApiName="gp3", group="EBS IOPS"),
    _product("AmazonVPC", "", "PublicIPv4:InUseAddress", "Hrs", "0.0050000000", group="VPCPublicIPv4Address"),
    _product("AmazonVPC", "", "PublicIPv4:IdleAddress", "Hrs", "0.0050000000", group="VPCPublicIPv4Address"),
    _product("AmazonVPC", "", "PublicIPv4:ContiguousBlock", "Hrs", "0.0080000000", group="VPCPublicIPv4Address"),
    _product("AmazonVPC", "VpcEndpoint", "VpcEndpoint-Hours", "Hrs", "0.0100000000", group="VPCE:VpcEndpoint", operation="VpcEndpoint"),
    _product("AmazonVPC", "VpcEndpoint", "VpcEndpoint-Bytes", "GB", ["0.0100000000", "0.0060000000"], group="VPCE:VpcEndpoint", operation="VpcEndpoint"),
    _product("AmazonVPC", "VpcEndpoint", "VpcEndpoint-GWLBE-Hours", "Hrs", "0.0110000000", group="VPCE:VpcEndpoint", operation="VpcEndpoint"),
    _product("AmazonEKS", "Compute", "AmazonEKS-Hours:perCluster", "Hours", "0.1000000000", operation="CreateOperation"),
    _product("AmazonEKS", "Compute", "AmazonEKS-Hours:extendedSupport", "Hours", "0.5000000000", operation="ExtendedSupport", tiertype="HAExtended"),
    _product("AmazonEFS", "Provisioned Throughput", "ProvisionedTP-MiBpsHrs", "MiBps-Mo", "6.0000000000"),
    _product("AmazonEFS", "Provisioned Throughput", "IncludedTP-MiBpsHrs", "MiBps-Mo", "0.0000000000"),
    _product("AmazonEFS", "Storage", "TimedStorage-ByteHrs", "GB-Mo", "0.3000000000", storageClass="General Purpose"),
    _product("AmazonEFS", "Storage", "IATimedStorage-ByteHrs", "GB-Mo", "0.0250000000", storageClass="Infrequent Access"),
    _product("AmazonFSx", "Storage", "Storage", "GB-Mo", "0.1400000000", throughputCapacity="N/A", **_LUSTRE),
    *(_product("AmazonFSx", "Storage", f"Storage.SSD.{step}", "GB-Mo", price, throughputCapacity=step, **_LUSTRE) for step, price in (
        ("50", "0.1400000000"), ("100", "0.1900000000"), ("200", "0.2900000000"), ("125", "0.1450000000"),
    )),
    _product("AmazonFSx", "Storage", "Storage.HDD.12", "GB-Mo", "0.0250000000", throughputCapacity="12", **{**_LUSTRE, "storageType": "HDD"}),
    _product("AmazonFSx", "Storage", "BackupUsage", "GB-Mo", "0.0500000000", throughputCapacity="N/A", **_LUSTRE),
    _product("AmazonFSx", "Storage", "Storage", "GB-Mo", "0.1300000000", throughputCapacity="N/A", **{**_LUSTRE, "fileSystemType": "Windows"}),
    _product("awskms", "Encryption Key", "KMS-Keys", "Keys", "1.0000000000"),
    _product("AmazonCloudWatch", "Alarm", "CW:AlarmMonitorUsage", "Alarms", "0.1000000000", alarmType="Standard"),
    _product("AmazonCloudWatch", "Alarm", "CW:HighResAlarmMonitorUsage", "Alarms", "0.3000000000", alarmType="High Resolution"),
    _product("AmazonCloudWatch", "Metric", "CW:MetricMonitorUsage", "Metrics", ["0.0000000000", "0.3000000000", "0.1000000000"], group="Metric"),
]  # fmt: skip
_refused: Counter[tuple[str, str]] = Counter()
"""Requests refused, by the content of price-list.json and service code."""


def _given() -> tuple[Data, str]:
    path = Path(os.environ["SANDBOX_DIR"]) / "price-list.json"
    text = path.read_text() if path.is_file() else "{}"
    return json.loads(text), text


def _usage(product: Data, region: str) -> str:
    code = LOCATIONS[region][1]
    if product["service"] == "awskms":
        return f"{region}-{product['usage']}"
    bare = region == "us-east-1" and product["service"] in ("AmazonEC2", "AmazonCloudWatch")
    return str(product["usage"]) if bare else f"{code}-{product['usage']}"


def _document(product: Data, region: str, prices: Data) -> Data:
    usage, service = _usage(product, region), product["service"]
    sku = base64.b32encode(hashlib.sha256(json.dumps([product, region]).encode()).digest()).decode()[:16]
    steps = prices.get(product["usage"], product["price"])
    steps = steps if isinstance(steps, list) else [steps]
    published = PUBLISHED.get(service, "2026-07-13T18:00:00Z")
    dimensions = {}
    for number, price in enumerate(steps):
        rate = f"{sku}.{TERM}.{RATE if number == 0 else f'STEP{number:06}'}"
        dimensions[rate] = {
            "unit": product["unit"], "beginRange": str(number * 1000), "appliesTo": [], "rateCode": rate,
            "endRange": "Inf" if number == len(steps) - 1 else str((number + 1) * 1000), "pricePerUnit": {"USD": price},
            "description": f"${float(price):g} per {product['unit']} of {usage} {product.get('text', '')}".strip(),
        }  # fmt: skip
    on_demand = {f"{sku}.{TERM}": {
        "priceDimensions": dimensions, "sku": sku, "effectiveDate": "2026-08-01T00:00:00Z", "offerTermCode": TERM, "termAttributes": {},
    }}  # fmt: skip
    terms: Data = {"OnDemand": on_demand}
    if product["family"] == "Compute Instance":
        terms["Reserved"] = {f"{sku}.4NA7Y494T4": {
            "priceDimensions": {f"{sku}.4NA7Y494T4.{RATE}": {"unit": "Hrs", "pricePerUnit": {"USD": "0.0100000000"}}},
            "sku": sku, "termAttributes": {"LeaseContractLength": "1yr", "PurchaseOption": "No Upfront"},
        }}  # fmt: skip
    attributes = {
        "regionCode": region, "location": LOCATIONS[region][0], "locationType": "AWS Region", "servicecode": service,
        "usagetype": usage, "operation": "", **product["attributes"],
    }  # fmt: skip
    family = {"productFamily": product["family"]} if product["family"] else {}
    version = "".join(c for c in published if c.isdigit())
    return {
        "product": {**family, "attributes": attributes, "sku": sku}, "serviceCode": service, "terms": terms,
        "version": version, "publicationDate": published,
    }  # fmt: skip


def _page(items: list[Any], request: Data, most: int) -> tuple[list[Any], Data]:
    """Part of the items, and the token of the next part. A token of another request is refused."""
    asked = {key: value for key, value in request.items() if key not in ("NextToken", "MaxResults")}
    sign = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    start = 0
    if token := request.get("NextToken"):
        of, _, at = str(token).partition(":")
        if of != sign or not at.isdigit():
            raise ApiError("InvalidNextTokenException", "Pagination token is invalid")
        start = int(at)
    end = start + min(most, int(request.get("MaxResults", 100)))
    return items[start:end], {"NextToken": f"{sign}:{end}"} if end < len(items) else {}


def _answer(action: str, data: Data) -> Data:
    if action not in ("DescribeServices", "GetProducts"):
        raise ApiError("UnsupportedOperation", f"the sandbox's Price List has no {action}")
    if get_region() not in ENDPOINTS:
        raise ApiError("InvalidParameterException", f"The Price List has no endpoint in {get_region()}")
    request = service_model.checked("pricing", action, data)
    if request.get("FormatVersion", "aws_v1") != "aws_v1":
        raise ApiError("InvalidParameterException", "Input Parameters are invalid. formatVersion must be aws_v1")
    given, text = _given()
    service = str(request.get("ServiceCode", ""))
    if _refused[text, service] < given.get("throttled", {}).get(service, 0):
        _refused[text, service] += 1
        raise ApiError("ThrottlingException", "Rate exceeded")
    products = [
        *(product for product in PRODUCTS if product["usage"] not in given.get("without", ())),
        *({"family": "", "attributes": {}, **more} for more in given.get("products", [])),
    ]
    documents = [_document(product, region, given.get("prices", {})) for product in products for region in LOCATIONS]
    fields: dict[str, set[str]] = {}
    for document in documents:
        fields.setdefault(document["serviceCode"], {"productFamily"}).update(document["product"]["attributes"])
    if service and service not in fields:
        raise ApiError("InvalidParameterException", f"Input Parameters are invalid. serviceCode {service} is unknown")
    if action == "DescribeServices":
        known = [
            {"ServiceCode": code, "AttributeNames": sorted(names)}
            for code, names in sorted(fields.items())
            if service in ("", code)
        ]
        part, following = _page(known, request, given.get("page", 100))
        return {"Services": part, "FormatVersion": "aws_v1", **following}
    for rule in request.get("Filters", []):
        if rule["Type"] != "TERM_MATCH":
            raise ApiError(
                "InvalidParameterException", f"the sandbox's Price List has no filters of type {rule['Type']}"
            )
        if rule["Field"] not in fields[service]:
            raise ApiError(
                "InvalidParameterException", f"Input Parameters are invalid. {service} has no {rule['Field']}"
            )
    wanted = [(rule["Field"], rule["Value"]) for rule in request.get("Filters", [])]
    found = [d for d in documents if d["serviceCode"] == service and all(
        {**d["product"]["attributes"], "productFamily": d["product"].get("productFamily", "")}.get(field) == value for field, value in wanted
    )]  # fmt: skip
    part, following = _page(found, request, given.get("page", 100))
    return {"PriceList": [json.dumps(document) for document in part], "FormatVersion": "aws_v1", **following}


async def handle_request(
    _method: str, _path: str, headers: dict[str, str], body: bytes, _query: dict[str, Any]
) -> Response:
    """Respond to a request in the service's JSON protocol."""
    reply = {"Content-Type": "application/x-amz-json-1.1"}
    try:
        answer = _answer(headers.get("x-amz-target", "").removeprefix(TARGET), json.loads(body or b"{}"))
        return 200, reply, json.dumps(answer).encode()
    except ApiError as error:
        return error.status, reply, json.dumps({"__type": error.code, "Message": error.message}).encode()
