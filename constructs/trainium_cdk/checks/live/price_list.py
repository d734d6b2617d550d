"""Prices from the AWS Price List, one request for each price."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from trainium_cdk.catalog.offers import Offer, endpoint, offer
from trainium_cdk.checks.live.aws import Aws
from trainium_cdk.checks.live.cost import names
from trainium_cdk.checks.live.model import Quote, Target, join_words
from trainium_cdk.errors import AwsError, Denied, NoCredentials, Unreachable
from trainium_cdk.settings import Environment

ACTIONS = ("pricing:DescribeServices", "pricing:GetProducts")
"""What may be needed. Both are on `*`; only prices of AWS PCS need the first one."""
_PREFIX = r"(?:[A-Z]{2,4}[0-9]?-|[a-z-]+-[0-9]-)?"
"""Of usage types: a code of the region (`USE1-`), or the region itself (of KMS)."""
_PCS = re.compile(r"parallel-?comput|^(aws|amazon)-?pcs$", re.IGNORECASE)
_READING = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class _Rate:
    usage: str
    unit: str
    usd: float
    date: str
    text: str
    effective: str
    sku: str


def ask(target: Target, aws: Aws | None = None) -> Target:
    """The target with a quote for each price of its estimate that the environment file does not give.

    Args:
        aws: the connection. Default: one with the current credentials.
    """
    region = target.env.region
    wanted = [name for name in names(target) if target.quote(name).source != "environment file"]
    return replace(
        target, live=dict(zip(wanted, _quotes(aws or Aws(region), [(region, name) for name in wanted]), strict=True))
    )


def on_demand(env: Environment, kind: str, regions: Iterable[str], *, live: bool = False) -> dict[str, Quote]:
    """Region -> the on-demand price of an instance type there, as of `Target.quote`; with `live` that of the Price List, where it has one."""
    targets = {
        region: Target(env.model_copy(update={"region": region}), next(iter(env.engines), "")) for region in regions
    }
    if live:
        asked = [region for region, target in targets.items() if target.quote(kind).source != "environment file"]
        found = _quotes(Aws(env.region), [(region, kind) for region in asked])
        for region, quote in zip(asked, found, strict=True):
            targets[region] = replace(targets[region], live={kind: quote})
    quotes = {region: target.quote(kind) for region, target in targets.items()}
    return {region: Quote(why=quote.why) if quote.capacity_block else quote for region, quote in quotes.items()}


def _quotes(aws: Aws, wanted: Sequence[tuple[str, str]]) -> list[Quote]:
    """A quote for each region and name of a price."""
    aws = aws.limited_to(ACTIONS)
    for region, name in wanted[:1]:
        try:
            _quote(aws, region, name)
        except (NoCredentials, Denied, Unreachable) as e:  # so will the others
            return [Quote(why=_reason(e))] * len(wanted)
        except AwsError:  # of this one; its response is kept
            pass
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda one: _quoted(aws, *one), wanted))


def _quoted(aws: Aws, region: str, name: str) -> Quote:
    try:
        return _quote(aws, region, name)
    except AwsError as e:
        return Quote(why=_reason(e))


def _reason(error: AwsError) -> str:
    match error:
        case NoCredentials():
            return f"no credentials for the Price List: {error}. Sign in (aws sso login), or set AWS_PROFILE"
        case Denied():
            return f"these credentials may not read the Price List: allow {error.action} on *"
        case Unreachable():
            return f"the Price List cannot be reached: {error}"
        case _ if "Throttling" in str(error):
            return "the Price List refused too many requests (ThrottlingException): try again in a minute"
    return f"the Price List refused the request: {error}"


def _quote(aws: Aws, region: str, name: str) -> Quote:
    """Raises AwsError: the request failed."""
    found = offer(name)
    if found is None:
        return Quote(why="the Price List is not asked for it")
    at = endpoint(region)
    codes = [found.service] if found.service else _codes(aws, at)
    if not codes:
        return Quote(why=f"the Price List names no service for it; AWS publishes it at {found.page}")
    filters = {"regionCode": region, **found.filters}
    documents: list[str] = []
    for code in codes:
        documents += aws(
            "pricing:GetProducts",
            region=at,
            ServiceCode=code,
            FormatVersion="aws_v1",
            Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
        )["PriceList"]
    try:
        rates = [rate for document in documents for rate in _rates(found, json.loads(document))]
    except _READING as e:
        return Quote(why=f"the Price List's response could not be read ({type(e).__name__}: {e})")
    quote = _one(found, rates, region, codes)
    if found.added_to and quote.usd is not None:
        whole = _quote(aws, region, found.added_to)
        if whole.usd is None:
            return whole
        return replace(
            quote, usd=whole.usd + quote.usd, date=min(whole.date, quote.date), text=f"{whole.text}; {quote.text}",
            effective=max(whole.effective, quote.effective), sku=f"{whole.sku}; {quote.sku}",
        )  # fmt: skip
    return quote


def _codes(aws: Aws, at: str) -> list[str]:
    services = aws("pricing:DescribeServices", region=at, FormatVersion="aws_v1")["Services"]
    return [code for service in services if _PCS.search(code := str(service["ServiceCode"]))]


def _one(found: Offer, rates: list[_Rate], region: str, codes: list[str]) -> Quote:
    what = f"{join_words(codes)}, {found.usage or ' '.join(found.words)}, {region}"
    if not rates:
        return Quote(why=f"the Price List has no such product ({what})")
    fitting = [rate for rate in rates if not found.units or rate.unit.lower() in map(str.lower, found.units)]
    if not fitting:
        units = join_words(sorted({rate.unit for rate in rates}))
        return Quote(why=f"the Price List quotes it in {units}, not in {join_words(found.units)} ({what})")
    if len({rate.usd for rate in fitting}) > 1:
        several = join_words(sorted({f"{rate.usage} at {rate.usd:g} USD" for rate in fitting}))
        return Quote(why=f"the Price List has several products that fit ({what}): {several}")
    rate = fitting[0]
    return Quote(rate.usd, "Price List", rate.date, rate.text, "", rate.unit, rate.effective, rate.sku)


def _rates(found: Offer, document: dict[str, Any]) -> Iterator[_Rate]:
    """The on-demand rate of a product that is the one; of a price with steps the first that is not free."""
    attributes = document["product"]["attributes"]
    usage = str(attributes.get("usagetype", ""))
    for term in document["terms"].get("OnDemand", {}).values():
        steps = sorted(term["priceDimensions"].values(), key=lambda step: float(step.get("beginRange") or 0))
        paid = [step for step in steps if float(step["pricePerUnit"].get("USD", 0))] or steps
        step = next((step for step in paid if "USD" in step["pricePerUnit"]), None)
        text = str(step.get("description", "")) if step else ""
        if step and _is(found, usage, " ".join((*map(str, attributes.values()), text))):
            usd, date = float(step["pricePerUnit"]["USD"]), str(document["publicationDate"])[:10]
            effective, sku = str(term.get("effectiveDate", ""))[:10], str(document["product"].get("sku", ""))
            yield _Rate(usage, str(step["unit"]), usd, date, text, effective, sku)


def _is(found: Offer, usage: str, text: str) -> bool:
    if found.usage:
        return re.fullmatch(_PREFIX + re.escape(found.usage), usage) is not None
    low = text.lower()
    return all(word in low for word in found.words) and not any(word in low for word in found.without)
