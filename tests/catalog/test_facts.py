"""The facts of the catalogue, against what is published, and against each other."""

from __future__ import annotations

import datetime as dt
import re
from importlib.resources import files

import pytest
from ruamel.yaml import YAML

from trainium_cdk.description.catalog import Catalog, CatalogOverrides, InstanceType
from trainium_cdk.description.catalog.lookup import plain, read
from trainium_cdk.description.catalog.models import Fact
from trainium_cdk.description.catalog.sources import sources
from trainium_cdk.description.catalog.updates import updates
from trainium_cdk.errors import UnknownCatalogEntry
from trainium_cdk.text import join_words

CATALOG = Catalog.load()

# type, vCPU, GiB, devices, cores of a device, HBM GiB, network cards, Gbit/s, EFA, NVMe GB, workers (logical cores by default)
PUBLISHED = [
    ("trn1.2xlarge", 8, 32, 1, 2, 32, 1, 12.5, 0, 474, 2),
    ("trn1.32xlarge", 128, 512, 16, 2, 512, 8, 800, 8, 4 * 1900, 32),
    ("trn1n.32xlarge", 128, 512, 16, 2, 512, 16, 1600, 16, 4 * 1900, 32),
    ("trn2.3xlarge", 12, 128, 1, 8, 96, 1, 200, 1, 470, 4),
    ("trn2.48xlarge", 192, 2048, 16, 8, 1536, 16, 3200, 16, 4 * 1900, 64),
    ("trn2u.48xlarge", 192, 2048, 16, 8, 1536, 16, 3200, 16, 4 * 1900, 64),
]


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row[0])
def test_instance_types(row: tuple[str, int, int, int, int, int, int, float, int, int, int]) -> None:
    i = CATALOG.instance(row[0])
    assert row == (
        i.name, i.vcpus, i.memory_gib, i.neuron_devices, i.cores_per_device, i.hbm_gib, i.network_cards, i.network_gbps,
        i.efa_interfaces, i.nvme.count * i.nvme.size_gb, i.logical_cores(),
    )  # fmt: skip


def test_its_files_mean_the_same_in_both_versions_of_yaml() -> None:
    """They are read as YAML 1.1, in which `no` is false and `1:30` is 90; users write 1.2 in their own entries."""
    for file in files("trainium_cdk.description.catalog").joinpath("data").iterdir():
        if file.name.endswith(".yaml"):
            assert read(file.name.removesuffix(".yaml")) == plain(
                YAML(typ="safe", pure=True).load(file.read_text("utf-8"))
            )


def test_every_type_is_in_the_table() -> None:
    assert set(CATALOG.instances) == {row[0] for row in PUBLISHED}


@pytest.mark.parametrize("kind", CATALOG.instances.values(), ids=lambda k: k.name)
def test_instance_types_are_consistent(kind: InstanceType) -> None:
    assert kind.name.split(".")[0] == kind.family
    assert kind.zone_ids
    assert len(set(kind.zone_ids)) == len(kind.zone_ids)
    assert all(CATALOG.region_of(z) for z in kind.zone_ids), "the region of each zone is known"
    assert kind.hbm_gib % kind.neuron_devices == 0
    assert kind.network_gbps / kind.network_cards in (12.5, 100, 200)
    assert kind.lnc == ((1,) if kind.family.startswith("trn1") else (1, 2)), "logical cores came with trn2"
    assert "on-demand" in kind.capacity_types


def test_workers_by_logical_core_size() -> None:
    trn2 = CATALOG.instance("trn2.48xlarge")
    assert [trn2.efa_of(setting) for setting in ("auto", "on", "off")] == [16, 16, 0]
    assert (trn2.default_lnc, trn2.logical_cores(1), trn2.logical_cores(2)) == (2, 128, 64)
    with pytest.raises(ValueError, match=r"trn1\.32xlarge supports LNC 1, not 2"):
        CATALOG.instance("trn1.32xlarge").logical_cores(2)


PARALLELCLUSTER = CATALOG.parallelcluster.releases["3.16.1"]
SMALLEST: list[tuple[Fact, dict[str, int]]] = [
    (CATALOG.instance("trn1.2xlarge"), {"ultraserver": 2, "efa_interfaces": 0} | dict.fromkeys(
        ("vcpus", "memory_gib", "neuron_devices", "cores_per_device", "hbm_gib", "network_cards", "network_gbps"), 1)),
    (CATALOG.instance("trn1.2xlarge").nvme, {"count": 0, "size_gb": 0}),
    (PARALLELCLUSTER, {"root_volume_gib": 1}),
    (next(iter(CATALOG.torchtitan.values())), {"tensor_parallel": 1, "steps": 1}),
    (CATALOG.collectives[0], {"nodes": 1, "bus_gb_per_second": 1}),
    (updates().kubernetes, {"minors_at_once": 1, "minors_behind": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("entry", "smallest"), SMALLEST, ids=lambda value: type(value).__name__)
def test_counts_have_a_smallest_value(entry: Fact, smallest: dict[str, int]) -> None:
    for field, value in smallest.items():
        assert getattr(entry.model_validate(entry.model_dump() | {field: value}), field) == value
        with pytest.raises(ValueError, match="greater than"):
            entry.model_validate(entry.model_dump() | {field: value - 1})


def test_a_type_has_no_more_efa_interfaces_than_network_cards() -> None:
    with pytest.raises(ValueError, match="efa_interfaces is 9, but each of the 8 network cards has at most one"):
        Catalog.load(CatalogOverrides(instances={"trn1.32xlarge": {"efa_interfaces": 9}}))


# release -> the types that it can train on, with which framework
ALL = {"trn1", "trn1n", "trn2", "trn2u", "trn3"}
FRAMEWORKS = {
    "2.26.1": {"torch-xla": ALL - {"trn3"}},
    "2.28.1": {"torch-xla": ALL - {"trn3"}, "jax": {"trn1", "trn1n"}},
    **{version: {"torch-xla": ALL, "jax": ALL} for version in ("2.29.0", "2.29.1", "2.30.0", "2.31.0", "2.31.1")},
    "2.32.0": {"jax": ALL},
    "2.33.0": {"torch-native": {"trn2", "trn2u", "trn3"}, "jax": ALL},
    "2.33.1": {"torch-native": {"trn2", "trn2u", "trn3"}, "jax": ALL},
}


def test_releases() -> None:
    found = {v: {name: set(f.families) for name, f in r.frameworks.items()} for v, r in CATALOG.releases.items()}
    assert found == FRAMEWORKS
    families = {i.family for i in CATALOG.instances.values()} | {"trn3"}
    for release in CATALOG.releases.values():
        assert all(set(f.families) <= families for f in release.frameworks.values())
    dates = [r.released for r in CATALOG.releases.values()]
    assert dates == sorted(dates)


def test_a_release_of_fixes_has_the_packages_of_the_one_before_but_those_that_it_names() -> None:
    """Release notes of Neuron 2.33.1, "Package updates"."""
    before, fixed = (CATALOG.release(version).model_dump(mode="json") for version in ("2.33.0", "2.33.1"))
    for framework in before["frameworks"].values():
        framework["image_example"] = None  # it has the runtime of 2.33.0, or an older one
    assert {key: value for key, value in fixed.items() if value != before[key]} == {
        "version": "2.33.1", "released": "2026-11-11", "dkms": "2.31.8.0", "collectives": "2.35.49.0", "runtime": "2.35.33.0",
        "only_named": True,
    }  # fmt: skip


def test_the_default_release_trains_on_every_type() -> None:
    """The default environment is trn1, whose training is PyTorch/XLA, in a container or on the node."""
    release = CATALOG.release()
    assert set(release.frameworks["torch-xla"].families) == {i.family for i in CATALOG.instances.values()}
    assert release.container
    assert CATALOG.images[release.container].runtime == release.runtime
    assert CATALOG.images[release.container].collectives == release.collectives


def test_parallelcluster_entries_are_consistent() -> None:
    facts = CATALOG.parallelcluster
    assert tuple(map(int, facts.oldest.split("."))) <= tuple(map(int, facts.default.split(".")))
    assert all(s == s.lower() for s in facts.denied_slurm_settings)
    assert all(d.startswith("/") for d in facts.reserved_mount_dirs)
    assert facts.provider_template.format(region="r", suffix="s", version="v").startswith(
        "https://r-aws-parallelcluster"
    )
    assert [facts.root_volume_gib(v) for v in (None, "3.15.0", "3.16.3", "9.9.9")] == [45, 45, 50, 50]


def test_kube_proxy_is_of_each_kubernetes_version() -> None:
    known = CATALOG.eks.addons["kube-proxy"].versions
    assert set(known) == set(CATALOG.eks.versions)
    for key, version in known.items():
        assert version.startswith(f"v{key}."), f"kube-proxy {version} for Kubernetes {key}"
    for name, addon in CATALOG.eks.addons.items():
        assert set(addon.versions) <= set(CATALOG.eks.versions), name


def test_add_ons_and_charts_of_a_cluster() -> None:
    facts, always = CATALOG.eks, ["vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns"]
    monitoring, observability = "eks-node-monitoring-agent", "amazon-cloudwatch-observability"
    for given, more in (
        ((set(), False, False), []),
        (({"efs"}, True, False), ["aws-efs-csi-driver", monitoring]),
        (({"fsx"}, False, True), ["aws-fsx-csi-driver", observability]),
        (({"efs", "fsx"}, True, True), ["aws-fsx-csi-driver", "aws-efs-csi-driver", monitoring, observability]),
    ):
        found = facts.addons_for(given[0], node_monitoring=given[1], observability=given[2])
        assert list(found) == always + more
    assert facts.charts_for((), efa=True, volcano=True, claims=True) == facts.charts
    assert list(facts.charts_for((), efa=False, volcano=True, claims=False)) == ["neuron", "jobset", "kueue", "volcano"]
    mirrored = facts.charts_for([("efa", "oci://mirror/efa")], efa=True, volcano=False, claims=True)
    assert list(mirrored) == ["neuron", "neuron-claims", "efa", "jobset", "kueue"]
    assert mirrored["neuron"] == facts.charts["neuron"]
    assert mirrored["efa"] == facts.charts["efa"].model_copy(update={"chart": "oci://mirror/efa", "repository": None})
    # the chart of two releases has one mirror
    twice = facts.charts_for([("neuron", "oci://mirror/neuron")], efa=False, volcano=False, claims=True)
    assert {twice[name].chart for name in ("neuron", "neuron-claims")} == {"oci://mirror/neuron"}


def test_plain_data_is_what_yaml_and_json_have() -> None:
    given = {"a": [dt.date(2026, 1, 2), (1, 2.5, None, True)], "b": {"c": "d"}}
    assert plain(given) == {"a": ["2026-01-02", [1, 2.5, None, True]], "b": {"c": "d"}}
    for bad, message in (
        ({1: 2}, "the key 1 is not text"),
        (float("inf"), "use a finite number"),
        ([b""], "bytes is not"),
    ):
        with pytest.raises(ValueError, match=message):
            plain(bad)
    assert [join_words(""), join_words("a"), join_words("ab"), join_words("abc", "or")] == [
        "none",
        "a",
        "a and b",
        "a, b or c",
    ]


@pytest.mark.parametrize("region", CATALOG.prices)
def test_prices_are_of_known_types(region: str) -> None:
    trainium = {name for name in CATALOG.prices[region] if name.startswith("trn")}
    assert trainium <= set(CATALOG.instances)
    assert all(re.fullmatch(r"[a-z]+\d[a-z]*\.\w+", name) for name in CATALOG.prices[region])
    assert all(price > 0 for price in CATALOG.prices[region].values())


@pytest.mark.parametrize("region", CATALOG.service_prices)
def test_prices_of_services_have_a_description(region: str) -> None:
    prices = CATALOG.service_prices[region]
    assert all(name.endswith(("-hour", "-month", "-gb")) and price > 0 for name, price in prices.items())


@pytest.mark.parametrize("name", sorted({name for prices in CATALOG.service_prices.values() for name in prices}))
def test_each_region_has_a_price_of_a_service_or_is_listed_as_searched(name: str) -> None:
    known = {region for region, prices in CATALOG.service_prices.items() if name in prices}
    listed = {r for r in CATALOG.service_prices if any(entry.covers(name, r) for entry in CATALOG.unknown_prices)}
    assert known | listed == CATALOG.service_prices.keys()
    assert not known & listed


def test_unknown_prices_are_not_guessed() -> None:
    assert CATALOG.price("trn2u.48xlarge", "ap-south-2") is None
    assert CATALOG.price("trn1.32xlarge", "us-east-1") == 21.5


def test_each_price_has_a_source() -> None:
    used = set[str]()
    for region in {*CATALOG.prices, *CATALOG.service_prices}:
        names = {*CATALOG.prices.get(region, {}), *CATALOG.service_prices.get(region, {})}
        assert names == CATALOG.price_sources[region].keys()
        used |= {source.text for source in CATALOG.price_sources[region].values()}
    assert used == {source["text"] for source in read("prices")["sources"].values()}
    block = CATALOG.price_source("trn2.48xlarge", "us-east-2")
    assert block
    assert (block.capacity_block, block.secondary) == (True, True)
    own = Catalog.load(CatalogOverrides(prices={"us-east-2": {"trn2.48xlarge": 1.0}}))
    assert (own.price("trn2.48xlarge", "us-east-2"), own.price_source("trn2.48xlarge", "us-east-2")) == (1.0, None)


def test_published_bandwidth() -> None:
    for point in CATALOG.collectives:
        assert CATALOG.collective(point.instance_type, point.nodes) is point
    assert CATALOG.collective("trn1.32xlarge", 999) is None


@pytest.mark.parametrize(
    "name", sorted(f.name for f in files("trainium_cdk.description.catalog").joinpath("data").iterdir())
)
def test_every_table_names_its_source_and_date(name: str) -> None:
    data = YAML(typ="safe", pure=True).load(
        files("trainium_cdk.description.catalog").joinpath("data", name).read_text("utf-8")
    )
    assert data["source"]
    assert str(data["date"]) >= "2026-01-01"  # in JSON it is text


@pytest.mark.parametrize(
    ("look_up", "message"),
    [
        (lambda: CATALOG.instance("trn1.32xl"), "unknown instance type 'trn1.32xl'; did you mean trn1.32xlarge?"),
        (lambda: CATALOG.instance("p5.48xlarge"), "did you mean"),
        (lambda: CATALOG.instance("zz"), "known: trn1.2xlarge, trn1.32xlarge"),
        (lambda: CATALOG.release("2.29.3"), "unknown Neuron SDK release '2.29.3'"),
        (lambda: CATALOG.release("x"), "describe it under `catalog.releases`"),
    ],
)  # fmt: skip
def test_unknown_entries(look_up: object, message: str) -> None:
    with pytest.raises(UnknownCatalogEntry) as caught:
        look_up()  # type: ignore[operator]
    assert message in str(caught.value)


def test_zones() -> None:
    assert CATALOG.zone_ids("trn1.32xlarge", "us-east-1") == ("use1-az4", "use1-az5", "use1-az6")
    assert CATALOG.regions_of("trn1n.32xlarge") == ("us-east-1", "us-east-2", "us-west-2")
    assert CATALOG.region_of("apse2-az1") == "ap-southeast-2"
    assert CATALOG.region_of("nowhere1-az1") is None


def test_overrides_are_merged_by_key_and_do_not_change_ours() -> None:
    changed = Catalog.load(CatalogOverrides(instances={"trn1.32xlarge": {"max_pods": 5}}))
    assert changed.instance("trn1.32xlarge").max_pods == 5
    assert changed.instance("trn1.32xlarge").vcpus == 128
    assert Catalog.load().instance("trn1.32xlarge").max_pods == 247
    assert Catalog.load() == Catalog.load(CatalogOverrides())
    assert Catalog.load(CatalogOverrides(instances={"trn1.32xlarge": {"max_pods": 5}})) is changed
    assert Catalog.load(CatalogOverrides(releases={"2.33.0": {"frameworks": None}})).release("2.33.0").frameworks == {}


def test_a_preset_has_the_options_that_it_sets() -> None:
    preset = {"title": "one", "module": "m", "config": "c", "tensor_parallel": 2}
    own = Catalog.load(CatalogOverrides(torchtitan={"own": preset})).torchtitan["own"]
    assert own.options == {"module": "m", "config": "c", "tensor_parallel": 2}


def test_each_path_of_a_cluster_configuration_has_one_update_policy() -> None:
    cluster = updates().parallelcluster
    assert sorted(cluster.by_path) == sorted(path for paths in cluster.policies.values() for path in paths)
    assert cluster.by_path["Scheduling.SlurmSettings.Database"] == "COMPUTE_FLEET_STOP"


def test_sources_of_jobs() -> None:
    for tree in sources().repositories.values():
        assert re.fullmatch(r"https://\S+", tree.url)
        assert re.fullmatch(r"[0-9a-f]{40}", tree.commit)
        assert re.fullmatch(r"[A-Z_]+", tree.ref_variable)
    for one in (o for found in sources().datasets.values() for o in found):
        assert re.fullmatch(r"s3://[a-z0-9.-]+/[\w./-]+", one.uri)
        assert one.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", one.sha256)
    assert {"nxdt", "samples"} <= set(sources().repositories)
