"""Loading the catalogue from its files, in YAML, and looking up its entries. Also how a sum of prices is written."""

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, model_validator

from trainium_cdk.description.catalog.models import (
    TITLES,
    CollectivePoint,
    Fact,
    Incompatible,
    InstanceType,
    NeuronRelease,
    Notice,
    Package,
    ParallelClusterFacts,
    PcsFacts,
    Recommendation,
    Repositories,
    Statement,
    TorchTitanPreset,
    TrainingImage,
    numbers,
)
from trainium_cdk.errors import UnknownCatalogEntry
from trainium_cdk.text import join_words

if TYPE_CHECKING:
    from trainium_cdk.description.catalog.eks import Ami, EksFacts

T = TypeVar("T")
_SDK_IMAGE = re.compile(r"(^|/)[a-z-]+-neuronx:[^/]*-sdk(?P<sdk>\d+\.\d+\.\d+)(-|$)")
"""Neuron's own images carry the release in their tag."""
DATA = Path(__file__).with_name("data")


@cache
def read(name: str) -> dict[str, Any]:
    """The content of a file of the catalogue, by its name without `.yaml`; dates are text."""
    import yaml

    try:
        from yaml import CSafeLoader
    except ImportError:  # a PyYAML that was built without libyaml
        from yaml import SafeLoader as CSafeLoader

    data = plain(
        yaml.load((DATA / f"{name}.yaml").read_text("utf-8"), Loader=CSafeLoader)
    )  # ten times as fast as ruamel.yaml, whose line numbers users need
    assert isinstance(data, dict)  # noqa: S101  our own file
    return data


def plain(data: Any) -> Any:
    """`data` as text, finite numbers, booleans, null, lists, and mappings with text keys; dates become text.

    An environment that is written out and read again is then the same.

    Raises:
        ValueError: it contains something else; the message says what.
    """
    if isinstance(data, Mapping):
        if invalid := next((k for k in data if not isinstance(k, str)), None):
            raise ValueError(f"the key {invalid!r} is not text: put it in quotes")
        return {k: plain(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [plain(v) for v in data]
    if isinstance(data, dt.date):
        return data.isoformat()
    if isinstance(data, float) and not isfinite(data):
        raise ValueError(f"{data} cannot be written in YAML and JSON: use a finite number")
    if data is None or isinstance(data, str | int | float | bool):
        return data
    raise ValueError(f"{type(data).__name__} is not text, a number, a list or a mapping")


Entries = Annotated[dict[str, dict[str, Any]], AfterValidator(plain)]


class PriceSource(Fact):
    """Source of prices.

    Attributes:
        date: the day on which they were published, or read if that is not known.
        text: what was read.
        secondary: a person has read the price and written it down; else it is a copy of AWS's own data.
        capacity_block: of an hour in a capacity block, of a type without an on-demand price.
    """

    date: dt.date
    text: str
    secondary: bool = False
    capacity_block: bool = False


class UnknownPrice(Fact):
    """Prices that were looked for and not found.

    Attributes:
        prices: instance types, and names of service prices.
        regions: empty for all.
        searched: where. date: when.
    """

    prices: tuple[str, ...]
    regions: tuple[str, ...] = Field(default=())
    searched: str
    date: dt.date

    def covers(self, name: str, region: str) -> bool:
        return name in self.prices and (not self.regions or region in self.regions)


def by_region(data: Mapping[str, Any]) -> Iterator[tuple[str, str, float, str]]:
    """Region, name, USD and key of the source of every price in the data file."""
    for name, groups in data["prices"].items():
        for group in groups:
            for region, usd in group["usd"].items():
                yield region, name, usd, group["from"]


CALCULATOR = "see https://calculator.aws/"
"""AWS's calculator, where the catalogue has no price."""
BLOCK = "a capacity block's price"


def describe_sum(known_sum: float, missing: Sequence[str], unit: str = "USD an hour") -> str:
    """A sum of prices for people. If a part is unknown, so is the sum.

    Args:
        known_sum: sum of the known parts.
        missing: the parts whose price is not known.

    >>> describe_sum(9.216, [])
    '9.22 USD an hour'
    >>> describe_sum(0.68, ["node management"])
    'unknown (known so far: 0.68 USD an hour; no price of node management; see https://calculator.aws/)'
    >>> describe_sum(0.0, ["NAT gateway", "head node"])
    'unknown (no price of NAT gateway and head node; see https://calculator.aws/)'
    """
    total = f"{known_sum:,.2f} {unit}".strip()
    if not missing:
        return total
    named = [*missing[:3], f"{len(missing) - 3} more"] if len(missing) > 4 else missing
    parts = [f"known so far: {total}"] if known_sum else []
    return f"unknown ({'; '.join([*parts, f'no price of {join_words(named)}', CALCULATOR])})"


class CatalogOverrides(Fact):
    """What an environment file adds to the catalogue or changes in it. Entries are merged key by key over the built-in
    ones."""

    @model_validator(mode="before")
    @classmethod
    def _empty_section_is_none(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data

    instances: Entries = Field(default={}, description="instance types by name")
    releases: Entries = Field(default={}, description="Neuron SDK releases by version")
    prices: dict[str, dict[str, float]] = Field(default={}, description="USD per hour by region and instance type")
    repositories: dict[str, str] = Field(
        default={}, description="package repositories (mirrors): apt, yum, pip, key, efa, agent"
    )
    regions: dict[str, str] = Field(
        default={}, description="region by zone-id prefix, for example {euc1: eu-central-1}"
    )
    torchtitan: Entries = Field(default={}, description="presets of the job kind torchtitan by name")


class Catalog(Fact):
    """The catalogue of one environment: the built-in entries with the environment's additions.

    Load it with `Catalog.load()`. Its look-up methods raise `UnknownCatalogEntry`.
    """

    instances: dict[str, InstanceType]
    releases: dict[str, NeuronRelease]
    default_release: str
    images: dict[str, TrainingImage]
    incompatible: tuple[Incompatible, ...]
    notices: tuple[Notice, ...]
    older_driver: Statement
    recommendations: tuple[Recommendation, ...]
    repositories: Repositories
    cloudwatch_agent: Package
    efa_installer: str
    prices: dict[str, dict[str, float]]
    service_prices: dict[str, dict[str, float]]
    prices_source: str
    prices_date: dt.date
    price_sources: dict[str, dict[str, PriceSource]] = Field(
        description="by region and name, of prices that no environment file has given"
    )
    unknown_prices: tuple[UnknownPrice, ...]
    parallelcluster: ParallelClusterFacts
    zone_regions: dict[str, str] = Field(description="region by zone-id prefix")
    torchtitan: dict[str, TorchTitanPreset]

    def __hash__(self) -> int:
        """Return the identity, so that results for a catalogue can be cached. `load` returns the same object for the same overrides."""
        return id(self)

    @cached_property
    def eks(self) -> "EksFacts":
        """The facts of EKS. No environment file changes them. They are read at the first use, like `pcs` and `collectives`."""
        from trainium_cdk.description.catalog.eks import EksFacts

        return EksFacts.model_validate({**read("eks"), "amis": read("amis")["amis"]})

    @cached_property
    def pcs(self) -> PcsFacts:
        return PcsFacts.model_validate(read("pcs"))

    @cached_property
    def collectives(self) -> tuple[CollectivePoint, ...]:
        data = read("collectives")
        source = {key: data[key] for key in ("source", "date")}
        return tuple(CollectivePoint.model_validate({**point, **source}) for point in data["points"])

    @classmethod
    def load(cls, overrides: CatalogOverrides | None = None) -> "Catalog":
        """The catalogue with `overrides` merged in.

        Raises:
            pydantic.ValidationError: an override does not fit the shape of its entry.
        """
        return _with(overrides.model_dump_json(exclude_defaults=True) if overrides else "{}")

    def instance(self, name: str) -> InstanceType:
        return _find(self.instances, name, "instance type", "catalog.instances")

    def release(self, version: str | None = None) -> NeuronRelease:
        return _find(self.releases, version or self.default_release, "Neuron SDK release", "catalog.releases")

    def recommended(self, instance: str) -> Recommendation | None:
        """Return AWS's recommendation for nodes of an instance type, or of a family; None for a family without a source."""
        family = self.instances[instance].family if instance in self.instances else instance
        return next((r for of in (instance, family) for r in self.recommendations if of in r.only), None)

    def ended(self, framework: str) -> str:
        """One sentence: that AWS has ended a framework for training, and up to which release it works; empty if it has not."""
        ends = (n for n in self.notices if n.framework == framework and not n.supported and n.releases.before is None)
        notice = next(ends, None)
        if notice is None:
            return ""
        last = max((r.version for r in self.releases.values() if framework in r.frameworks), key=numbers)
        stay = next((r.release for r in self.recommendations if r.framework == framework), last)
        return (
            f"AWS ended {TITLES[framework]} for training with Neuron SDK {notice.releases.first} ({notice.source}, {notice.date}): "
            f"it works up to {last}, and {stay} is the release to stay on"
        )

    @staticmethod
    def sdk_of(image: str) -> str | None:
        """The release of the Neuron SDK that the name of a training image of AWS gives; None for other images."""
        tag = _SDK_IMAGE.search(image)
        return tag["sdk"] if tag else None

    def runtime_of(self, image: str) -> str | None:
        """Version of the Neuron runtime in a container image, by the image's name; None if the catalogue does not know
        it."""
        known = self.images.get(image)
        if known is None and (sdk := self.sdk_of(image)):
            release = self.releases.get(sdk)
            return release.runtime if release else None
        return known.runtime if known else None

    def container(self, release: NeuronRelease, framework: str) -> str | None:
        """The training image of a release with a framework: the release's `container`, or, where that is known to hold another framework, the
        one of `images` that has it. None if the catalogue has none."""
        own, images = release.container, self.images
        if framework == "none" or (own and (own not in images or images[own].framework == framework)):
            return own
        return next(
            (n for n, i in images.items() if i.framework == framework and self.sdk_of(n) == release.version), None
        )

    def image_example(self, release: str, framework: str) -> str:
        """The example from which `trn image build` makes a training image of a release and a framework; DIR, for a folder of the user's
        own, if there is none."""
        known = self.releases.get(release)
        found = [f.image_example for name, f in known.frameworks.items() if name == framework] if known else []
        return found[0] if found and found[0] else "DIR"

    def amis(self, kubernetes: str) -> "dict[str, Ami]":
        """The known node images for a Kubernetes version by date of release, newest first."""
        return {date: of[kubernetes] for date, of in sorted(self.eks.amis.items(), reverse=True) if kubernetes in of}

    def price(self, instance: str, region: str, devices: int | None = None) -> float | None:
        """USD per hour on demand, or in a capacity block if AWS publishes no on-demand price (`price_source` tells
        which); None if the catalogue has no price. `devices`: of a part of a node, in proportion; None: of all."""
        usd, kind = self.prices.get(region, {}).get(instance), self.instances.get(instance)
        if usd and kind and devices and 0 < devices < kind.neuron_devices:
            return usd * devices / kind.neuron_devices
        return usd

    def price_source(self, name: str, region: str) -> PriceSource | None:
        """Return the source of the price of an instance type, or of a service by its name. None if the catalogue has none, or an environment file
        has given it."""
        return self.price_sources.get(region, {}).get(name)

    def describe_price(self, instance: str, region: str) -> str:
        """The price of an instance for people.

        >>> Catalog.load().describe_price("trn2.48xlarge", "us-east-2")
        "35.76 USD an hour, a capacity block's price"
        >>> Catalog.load().describe_price("trn1.32xlarge", "eu-west-1")
        'price unknown: see https://calculator.aws/'
        """
        usd, source = self.price(instance, region), self.price_source(instance, region)
        if usd is None:
            return f"price unknown: {CALCULATOR}"
        return f"{usd:,.2f} USD an hour{', ' + BLOCK if source and source.capacity_block else ''}"

    def collective(self, instance: str, nodes: int) -> CollectivePoint | None:
        """The published bandwidth of an all-reduce over this number of nodes; None if none is published."""
        points = (p for p in self.collectives if (p.instance_type, p.nodes) == (instance, nodes))
        return next(points, None)

    def region_of(self, zone_id: str) -> str | None:
        """The region of a zone id; None if its prefix is not known."""
        return self.zone_regions.get(zone_id.rsplit("-", 1)[0])

    def zone_ids(self, instance: str, region: str) -> tuple[str, ...]:
        """The zone ids of `region` that offer the instance type, in order."""
        return tuple(z for z in self.instance(instance).zone_ids if self.region_of(z) == region)

    def regions_of(self, instance: str) -> tuple[str, ...]:
        return tuple(sorted({r for z in self.instance(instance).zone_ids if (r := self.region_of(z))}))


def _find(table: Mapping[str, T], key: str, kind: str, section: str) -> T:
    if key not in table:
        raise UnknownCatalogEntry(kind, key, table, section)
    return table[key]


def _merged(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    both = {k: {**ours.get(k, {}), **v} if isinstance(v, Mapping) else v for k, v in theirs.items()}
    return {**ours, **both}


def _with_defaults(defaults: Mapping[str, Any], theirs: Any) -> Any:
    """Each framework merged over the defaults of its kind. What is not a mapping is passed on, for the models to
    reject."""
    if not isinstance(theirs, Mapping):
        return theirs or {}
    return {k: {**defaults.get(k, {}), **v} if isinstance(v, Mapping) else v for k, v in theirs.items()}


def _prices(overrides: CatalogOverrides) -> dict[str, Any]:
    data = read("prices")
    instances, services = dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    sources: dict[str, dict[str, Any]] = {}
    for region, name, usd, source in by_region(data):
        (instances if "." in name else services).setdefault(region, {})[name] = usd
        if name not in overrides.prices.get(region, {}):
            sources.setdefault(region, {})[name] = data["sources"][source]
    return {
        "prices": _merged(instances, overrides.prices),
        "service_prices": services,
        "prices_source": data["source"],
        "prices_date": data["date"],
        "price_sources": sources,
        "unknown_prices": data["unknown"],
    }


@lru_cache(maxsize=16)
def _with(overrides: str) -> Catalog:
    """One environment loads its catalogue many times."""
    return _build(CatalogOverrides.model_validate_json(overrides))


def _build(overrides: CatalogOverrides) -> Catalog:
    instances, neuron = read("instances"), read("neuron")
    types = _merged(instances["instances"], overrides.instances)
    releases = _merged(_merged(read("releases")["releases"], neuron["releases"]), overrides.releases)
    releases = {
        k: {**releases[k], "frameworks": _with_defaults(neuron["frameworks"], releases[k].get("frameworks"))}
        for k in sorted(releases, key=numbers)
    }
    return Catalog.model_validate(
        {
            "instances": {k: {**v, "name": k} for k, v in types.items()},
            "releases": {k: {**v, "version": k} for k, v in releases.items()},
            "default_release": neuron["default"],
            **{k: neuron[k] for k in ("images", "incompatible", "notices", "older_driver")},
            "recommendations": read("recommended")["recommended"],
            "repositories": {**neuron["repositories"], **overrides.repositories},
            **{k: neuron[k] for k in ("cloudwatch_agent", "efa_installer")},
            **_prices(overrides),
            "parallelcluster": read("parallelcluster"),
            "zone_regions": {**instances["regions"], **overrides.regions},
            "torchtitan": _merged(read("torchtitan")["presets"], overrides.torchtitan),
        }
    )


def device_counters() -> tuple[str, ...]:
    """Files of the driver whose numbers rise with each error that a device's memory could not correct, by their names."""
    return tuple(read("devices")["counters"])
