"""What Amazon EKS takes: versions, zones, names, who may use the cluster and from where."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from ipaddress import IPv4Network

from trainium_cdk.checks.addresses import PRIVATE
from trainium_cdk.checks.rule import Rule, error, groups, info, listed, near, twice, warning
from trainium_cdk.settings import Environment, Problem
from trainium_cdk.settings.problems import KeyPath

WIDEST_NETWORK = 8
"""Shortest prefix that may reach a public API: wider networks are nobody's own."""
SOON_DAYS = 90
RESERVED_NAMESPACES = (
    "default", "kube-node-lease", "kube-public", "kube-system", "neuron-healthcheck-system", "volcano-system",
)  # fmt: skip
VOLCANO_QUEUES = ("default", "root")
"""Queues that Volcano makes for itself."""
RESERVED_LABELS = ("eks.amazonaws.com", "k8s.io", "kubernetes.io", "trainium-cdk")
SERVICE_PREFIXES = range(12, 25)
"""Sizes of a cluster's network of services (CloudFormation, KubernetesNetworkConfig.ServiceIpv4Cidr, 2026-11)."""
EFA_ONLY_CNI = (1, 18, 5)
"""The first release of the VPC CNI that leaves EFA-only interfaces alone."""
_AT: KeyPath = ("eks",)


def kubernetes_version_is_supported(env: Environment) -> Iterator[Problem]:
    version, known = env.eks.version, env.catalog.eks.versions
    if version is None:
        return
    at, today, default = (*_AT, "version"), dt.date.today(), env.catalog.eks.default
    if version not in known:
        if _minor(version) > max(map(_minor, known)):
            text = "newer than any that this was checked with"
            yield warning(at, version, text, f"write {default} for one that it was checked with")
        else:
            yield error(at, version, "EKS makes no new clusters of it", f"write {listed(sorted(known), 'or')}")
        return
    support = known[version]
    if today > support.extended_support_until:
        yield error(at, version, f"EKS ended its support on {support.extended_support_until}", f"write {default}")
    elif today > support.standard_support_until:
        text = (
            f"standard support ended on {support.standard_support_until}: the control plane now costs six times as much"
        )
        yield warning(at, version, text, f"write {default}")
    elif (left := (support.standard_support_until - today).days) < SOON_DAYS:
        text = f"standard support ends in {left} days, on {support.standard_support_until}"
        yield warning(at, version, text, f"write {default}, or plan the upgrade")


def control_plane_has_two_zones(env: Environment) -> Iterator[Problem]:
    zones = env.eks_zone_ids
    existing = env.network.existing
    at: KeyPath = ("network", "existing", "private_subnets") if existing else ("network", "zone_ids")
    others = [z for z in env.catalog.eks.zone_ids.get(env.region, ()) if z not in zones]
    if len(zones) == 1:  # with none there is more to say, and another rule says it
        what = "describe a private subnet in another zone" if existing else "add a second zone, after the nodes' own"
        yield error(
            at,
            listed(zones),
            "EKS asks for subnets in two zones at least",
            f"{what}, as {listed(others[:3], 'or')}" if others else what,
            "eks",
        )


def control_plane_zones_take_one(env: Environment) -> Iterator[Problem]:
    able = env.catalog.eks.zone_ids.get(env.region)
    if not able:
        return
    existing = env.network.existing
    at: KeyPath = ("network", "existing", "private_subnets") if existing else ("network", "zone_ids")
    for zone in env.eks_zone_ids:
        if zone not in able and env.catalog.region_of(zone) == env.region:
            yield error(
                at, zone, "EKS puts no control plane into this zone", f"write {listed(able, 'or')} instead", "eks"
            )


def closed_clusters_have_charts_and_images(env: Environment) -> Iterator[Problem]:
    network, mirror = env.network, env.eks.mirror
    if network.reaches_internet:
        return
    charts = [name for name in env.eks_charts if name not in mirror.charts]
    images = [image for chart in env.eks_charts.values() for image in chart.images.values()]
    images += [env.catalog.eks.shell_image]
    hosts = sorted({image.partition("/")[0] for image in images if mirror.image(image) == image})
    if charts or hosts:
        at: KeyPath = ("network", "existing", "internet") if network.existing else ("network", "nat")
        missing = [f"charts {listed(charts)}"] * bool(charts) + [f"images of {listed(hosts)}"] * bool(hosts)
        keys = ["eks.mirror.charts"] * bool(charts) + ["eks.mirror.images"] * bool(hosts)
        yield error(
            at,
            False if network.existing else "none",
            f"{' and '.join(missing)} are out of reach without a way to the internet",
            f"name copies of them under {listed(keys)}, or write {'internet: true' if network.existing else 'nat: one'}",
            "eks",
        )
    elif not network.existing:
        needed = {
            *env.catalog.eks.endpoints,
            *(["ssm", "ssmmessages"] if env.eks.endpoint == "private" and env.eks.jump_host else []),
            *(["monitoring"] if env.eks.observability else []),
        }
        if unasked := sorted(needed - set(network.interface_endpoints)):
            yield error(
                ("network", "interface_endpoints"),
                listed(network.interface_endpoints),
                f"without a NAT gateway the cluster does not reach {listed(unasked)}",
                f"add {listed(unasked)}, or write nat: one",
                "eks",
            )


def support_is_to_be_had(env: Environment) -> Iterator[Problem]:
    known = env.catalog.eks.versions.get(env.kubernetes_version)
    if env.eks.support == "standard" and known and dt.date.today() > known.standard_support_until:
        yield error(
            (*_AT, "support"),
            "standard",
            f"standard support of Kubernetes {env.kubernetes_version} ended on {known.standard_support_until}, and EKS makes no cluster "
            "of it that has no other",
            f"write support: extended, or version: '{env.catalog.eks.default}'",
        )


def lnc_is_of_the_type(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        kind = env.catalog.instances.get(group.instance_type)
        if kind and group.lnc and group.lnc not in kind.lnc:
            text = f"{kind.name} runs LNC {listed(map(str, kind.lnc), 'or')}"
            yield error((*at, "lnc"), group.lnc, text, f"write lnc: {kind.default_lnc}, or remove it")


def a_private_api_is_reached_somehow(env: Environment) -> Iterator[Problem]:
    eks = env.eks
    if eks.endpoint == "private" and eks.jump_host is None:
        yield info(
            (*_AT, "jump_host"),
            "null",
            "the API is private, and nothing of the stack leads to it: `trn` works from inside the VPC only",
            "keep the jump host, or use a VPN or a peering of your own",
        )
    if eks.endpoint == "public" and eks.jump_host is not None and "jump_host" in eks.model_fields_set:
        yield warning((*_AT, "jump_host"), "(this section)", "a public endpoint needs none: none is made", "remove it")


def api_is_for_own_networks(env: Environment) -> Iterator[Problem]:
    cidrs = env.eks.public_cidrs
    for i, cidr in enumerate(cidrs):
        at, network = (*_AT, "public_cidrs", i), IPv4Network(cidr)
        if any(network.subnet_of(private) for private in PRIVATE):
            text = "nobody comes from these addresses over the internet; inside the VPC the API is reached anyway"
            yield error(at, cidr, text, "give the network that you are seen with, as 203.0.113.0/24")
        elif network.prefixlen < WIDEST_NETWORK:
            text = "this opens the Kubernetes API to a large part of the internet"
            yield error(at, cidr, text, "give your own network, as 203.0.113.0/24, or endpoint: private")
    for i in twice(cidrs):
        yield error((*_AT, "public_cidrs", i), cidrs[i], "this network is there already", "remove it")


def services_have_addresses_of_their_own(env: Environment) -> Iterator[Problem]:
    cidr, at = env.eks.service_cidr, (*_AT, "service_cidr")
    if cidr is None:
        if env.service_cidr is None:
            text = "the VPC and its peerings leave no private /16 for the cluster's services"
            yield error(at, "(not set)", text, "name a smaller network that none of them has, as 10.100.0.0/20")
        return
    own = IPv4Network(cidr)
    if own.prefixlen not in SERVICE_PREFIXES or not any(own.subnet_of(n) for n in PRIVATE[:3]):
        text = f"EKS takes a /{SERVICE_PREFIXES[0]} to a /{SERVICE_PREFIXES[-1]} of {listed(PRIVATE[:3], 'or')} for services"
        yield error(at, cidr, text, "write one of those, as 172.20.0.0/16")
    elif own.overlaps(IPv4Network(env.network.vpc_cidr)):
        yield error(at, cidr, f"it overlaps with the VPC's {env.network.vpc_cidr}", "write another, as 172.20.0.0/16")
    else:
        for peer in env.network.peerings:
            if own.overlaps(IPv4Network(peer.cidr)):
                text = (
                    f"it overlaps with {peer.cidr} of {peer.vpc_id}: from the cluster, addresses of both are services"
                )
                yield warning(at, cidr, text, "write another before the cluster is made; later it cannot be changed")


def principals_are_roles_or_users(env: Environment) -> Iterator[Problem]:
    for i, access in enumerate(env.eks.access):
        at = (*_AT, "access", i, "principal")
        _, _, service, _, account, resource = access.principal.split(":", 5)
        kind, _, name = resource.partition("/")
        if service == "sts" and kind == "assumed-role":
            role = f"arn:aws:iam::{account}:role/{name.partition('/')[0]}"
            yield error(at, access.principal, "this is a session of a role, not the role", f"write {role}")
        elif service != "iam" or kind not in ("role", "user"):
            text = "access entries are for IAM roles and users only"
            yield error(at, access.principal, text, "write a role, as arn:aws:iam::111122223333:role/Researcher")
        elif env.account and account != env.account:
            yield error(
                at,
                access.principal,
                f"it belongs to account {account}, the cluster to {env.account}",
                "name a role of the cluster's account, which the other account may take",
            )
    for i in twice(a.principal for a in env.eks.access):
        at = (*_AT, "access", i, "principal")
        yield error(
            at, env.eks.access[i].principal, "it has an entry already: a cluster takes one for each", "keep one"
        )


def namespace_is_the_jobs_own(env: Environment) -> Iterator[Problem]:
    if env.eks.namespace in RESERVED_NAMESPACES:
        text = "this namespace belongs to the system or to a plug-in"
        yield error((*_AT, "namespace"), env.eks.namespace, text, "write a name of its own, as training")


def addons_are_known(env: Environment) -> Iterator[Problem]:
    known = env.catalog.eks.addons
    for name, version in env.eks.addon_versions.items():
        at = (*_AT, "addon_versions", name)
        if name not in known:
            yield error(at, version, "the stack installs no such add-on", f"write {near(name, known)}")
        elif name == "vpc-cni" and _release(version) < EFA_ONLY_CNI and any(_efa_only(env)):
            oldest = ".".join(map(str, EFA_ONLY_CNI))
            yield error(
                at,
                version,
                f"the VPC CNI before {oldest} takes hold of EFA-only interfaces, which {listed(_efa_only(env))} has",
                "remove it, or write efa_layout: efa",
            )


def node_groups_have_names_of_their_own(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        if group.name == "system":
            yield error((*at, "name"), group.name, "this is the name of the system nodes", "write another, as trn")
        elif group.name in VOLCANO_QUEUES:
            text = "the group's jobs go to a queue of its name, and Volcano has a queue of this name already"
            yield error((*at, "name"), group.name, text, "write another, as trn")


def labels_are_own(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        for key, value in group.labels.items():
            domain = key.rpartition("/")[0]
            if domain and any(domain == d or domain.endswith(f".{d}") for d in RESERVED_LABELS):
                text = f"labels of {domain} are given by the system"
                yield error(
                    (*at, "labels", key), value, text, f"write {key.rpartition('/')[2]}, or a domain of your own"
                )


def layout_is_of_efa(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        kind = env.catalog.instances.get(group.instance_type)
        if "efa_layout" in group.model_fields_set and kind and not kind.efa_of(group.efa):
            text = "it does not apply: these nodes have no EFA interfaces"
            yield warning((*at, "efa_layout"), group.efa_layout, text, "remove it")


def plugins_fit_together(env: Environment) -> Iterator[Problem]:
    plugins = env.eks.plugins
    if plugins.node_recovery and not plugins.node_problem_detector:
        yield error(
            (*_AT, "plugins", "node_recovery"),
            True,
            "recovery is told by the node problem detector, which is off",
            "write node_problem_detector: true",
        )
    if plugins.node_recovery and plugins.node_monitoring:
        yield error(
            (*_AT, "plugins", "node_recovery"),
            True,
            "EKS's node repair, through node_monitoring, replaces nodes with failed devices already: two would replace one node",
            "write node_recovery: false, or node_monitoring: false",
        )
    if plugins.neuron_scheduler:
        text = (
            "no job of `trn submit` uses it: they take whole nodes. It serves pods of your own that take a part of one"
        )
        yield info((*_AT, "plugins", "neuron_scheduler"), True, text, "remove it if you have no such pods")
    if not plugins.volcano:
        text = "`trn submit` and the autoscaler need Volcano: without it nothing starts the nodes of a job together"
        yield warning((*_AT, "plugins", "volcano"), False, text, "write volcano: true")


def node_image_is_known(env: Environment) -> Iterator[Problem]:
    asked, version = env.eks.ami_release, env.kubernetes_version
    known = env.catalog.amis(version)
    at = (*_AT, "ami_release")
    if asked and asked in known:
        return
    if asked and known and asked < max(known):
        text = f"EKS released no Neuron node image for Kubernetes {version} on that day, as far as the catalogue knows"
        yield error(at, asked, text, f"write {near(asked, known)}")
    elif asked:
        text = "newer than any node image the catalogue knows: which Neuron driver it has is not checked"
        yield warning(
            at, asked, text, f"write {max(known)} for a known one" if known else "remove it, for EKS's newest"
        )


def node_image_is_pinned(env: Environment) -> Iterator[Problem]:
    groups_without = [g.name for _, g in groups(env) if not g.custom_ami]
    known = env.bootstrap.neuron_release in (None, *env.catalog.releases) and env.catalog.amis(env.kubernetes_version)
    if not groups_without or env.eks.ami_release or not known or env.node_image:
        return
    yield info(
        (*_AT, "ami_release"),
        "(not set)",
        f"no known node image for Kubernetes {env.kubernetes_version} has a driver that goes with Neuron "
        f"{env.release.version}, so {listed(groups_without)} take EKS's newest, whatever its driver",
        "name one whose driver you know, as ami_release: '20261101'",
    )


def release_has_an_image(env: Environment) -> Iterator[Problem]:
    known = env.bootstrap.neuron_release in (None, *env.catalog.releases)
    release = env.release if known else None
    if release and not release.container:
        yield info(
            ("bootstrap", "neuron_release"),
            release.version,
            "no training image of this release is known here, so each job must name its image",
            "build one with `trn image build`, or describe it under catalog.releases as `container`",
            "eks",
        )


def buckets_are_named_once(env: Environment) -> Iterator[Problem]:
    for i in twice(env.eks.data_buckets):
        yield error((*_AT, "data_buckets", i), env.eks.data_buckets[i], "it is there already", "remove it")


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.removeprefix("v").partition("-")[0].split(".")))


def _efa_only(env: Environment) -> list[str]:
    """The node groups that have EFA-only interfaces."""
    known = env.catalog.instances
    return [
        g.name
        for _, g in groups(env)
        if g.efa_layout != "efa" and g.instance_type in known and known[g.instance_type].efa_of(g.efa)
    ]


RULES: tuple[Rule, ...] = (
    kubernetes_version_is_supported,
    control_plane_has_two_zones,
    control_plane_zones_take_one,
    closed_clusters_have_charts_and_images,
    support_is_to_be_had,
    lnc_is_of_the_type,
    a_private_api_is_reached_somehow,
    api_is_for_own_networks,
    services_have_addresses_of_their_own,
    principals_are_roles_or_users,
    namespace_is_the_jobs_own,
    addons_are_known,
    node_groups_have_names_of_their_own,
    labels_are_own,
    layout_is_of_efa,
    plugins_fit_together,
    node_image_is_known,
    node_image_is_pinned,
    release_has_an_image,
    buckets_are_named_once,
)
