"""Amazon EKS: versions, zones, names, access to the cluster, and the principals that may use it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from ipaddress import IPv4Network

from trainium_cdk.description.catalog.models import numbers
from trainium_cdk.description.checks.network import PRIVATE, missing_endpoints
from trainium_cdk.description.checks.rule import Rules, duplicates, error, groups, info, join_words, near, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.inventory import inventory
from trainium_cdk.description.settings.principals import SSO_NAME, SSO_PATH, principal
from trainium_cdk.problems import KeyPath
from trainium_cdk.text import is_placeholder

WIDEST_NETWORK = 8
"""Shortest prefix that may reach a public API. No user owns a wider network."""
SOON_DAYS = 90
RESERVED_NAMESPACES = (
    "default", "kube-node-lease", "kube-public", "kube-system", "neuron-healthcheck-system", "neuron-dra-driver", "jobset-system",
    "kueue-system", "volcano-system",
)  # fmt: skip
SERVICE_PREFIXES = range(12, 25)
"""Allowed sizes of a cluster's service network (CloudFormation, KubernetesNetworkConfig.ServiceIpv4Cidr, 2026-11)."""
EFA_ONLY_CNI = (1, 18, 5)
"""The first release of the VPC CNI that ignores EFA-only interfaces."""
KUBE_PROXY_BEHIND = 3
"""Minor versions by which kube-proxy may be older than the control plane (Kubernetes version skew policy)."""
TAGS = 1700
"""Characters of tags, each with 22 of JSON, that fit into the template of 250 resources (CloudFormation quotas: 1 MB)."""
TRUST_POLICY = 2048
"""Characters of a role's trust policy, if the account's quota was not raised (IAM quotas, 2026-11)."""
_TRUST_WITHOUT_USERS = 191
"""Characters of the trust policy of the role that `trn` takes, without `users`."""
_NO_PATH = "roles of IAM Identity Center have a path, and this ARN has none"
_AT: KeyPath = ("eks",)


RULES = Rules()


@RULES.refuse("EKS user guide, kubernetes-versions: what new clusters may have")
def unsupported_kubernetes_version(env: Environment) -> Iterator[Problem]:
    version, known = env.eks.version, env.catalog.eks.versions
    if version is None:
        return
    at, today, default = (*_AT, "version"), dt.date.today(), env.catalog.eks.default
    if version not in known:
        if _minor(version) > max(map(_minor, known)):
            text = "newer than every version that this library was checked with"
            yield warning(at, text, f"write {default} for a version that was checked")
        else:
            yield error(
                at, "EKS does not create clusters of this version any more", f"write {join_words(sorted(known), 'or')}"
            )
        return
    support = known[version]
    if today > support.extended_support_until:
        yield error(at, f"EKS ended its support on {support.extended_support_until}", f"write {default}")
    elif today > support.standard_support_until:
        text = (
            f"standard support ended on {support.standard_support_until}: the control plane now costs six times as much"
        )
        yield warning(at, text, f"write {default}")
    elif (left := (support.standard_support_until - today).days) < SOON_DAYS:
        text = f"standard support ends in {left} days, on {support.standard_support_until}"
        yield warning(at, text, f"write {default}, or plan the upgrade")


@RULES.add
def large_tags(env: Environment) -> Iterator[Problem]:
    size = sum(len(key) + len(value) + 22 for key, value in env.tags.items())
    if size > TAGS:
        text = "each resource of the stack has them, and CloudFormation takes a template of up to 1 MB"
        advice = f"write fewer or shorter ones if it refuses yours: up to {TAGS:,} characters always fit"
        yield warning(("tags",), text, advice, value=f"{size:,} characters with their JSON")


@RULES.refuse("EKS user guide, network-reqs: subnets in two zones")
def control_plane_of_one_zone(env: Environment) -> Iterator[Problem]:
    zones = inventory(env, "eks").zone_ids
    existing = env.network.existing
    at: KeyPath = ("network", "existing", "private_subnets") if existing else ("network", "zone_ids")
    others = [z for z in env.catalog.eks.zone_ids.get(env.region, ()) if z not in zones]
    if len(zones) == 1:  # another rule reports the case without zones
        what = "describe a private subnet in another zone" if existing else "add a second zone after the nodes' zone"
        yield error(
            at,
            "EKS requires subnets in at least two zones",
            f"{what}, for example {join_words(others[:3], 'or')}" if others else what,
            value=join_words(zones),
            engine="eks",
        )


@RULES.refuse("EKS user guide, network-reqs: zones without a control plane")
def zone_without_control_plane(env: Environment) -> Iterator[Problem]:
    able = env.catalog.eks.zone_ids.get(env.region)
    if not able:
        return
    existing = env.network.existing
    at: KeyPath = ("network", "existing", "private_subnets") if existing else ("network", "zone_ids")
    for zone in inventory(env, "eks").zone_ids:
        if zone not in able and env.catalog.region_of(zone) == env.region:
            yield error(
                at,
                "EKS does not support a control plane in this zone",
                f"write {join_words(able, 'or')} instead",
                value=zone,
                engine="eks",
            )


@RULES.refuse("EKS user guide, private-clusters: images and services that nodes must reach")
def isolated_cluster_without_mirrors(env: Environment) -> Iterator[Problem]:
    network, mirror = env.network, env.eks.mirror
    if network.reaches_internet:
        return
    unmirrored = env.eks_charts.keys() - mirror.charts.keys() - {"neuron-claims"}  # which is the chart `neuron`
    charts = [name for name in env.eks_charts if name in unmirrored]
    images = [image for chart in env.eks_charts.values() for image in chart.images.values()]
    images += [env.catalog.eks.shell_image]
    hosts = sorted({image.partition("/")[0] for image in images if mirror.image(image) == image})
    if charts or hosts:
        at: KeyPath = ("network", "existing", "internet") if network.existing else ("network", "nat")
        missing = [f"charts {join_words(charts)}"] * bool(charts) + [f"images of {join_words(hosts)}"] * bool(hosts)
        keys = ["eks.mirror.charts"] * bool(charts) + ["eks.mirror.images"] * bool(hosts)
        yield error(
            at,
            f"{' and '.join(missing)} cannot be pulled without access to the internet",
            f"set copies of them under {join_words(keys)}, or write {'internet: true' if network.existing else 'nat: one'}",
            engine="eks",
        )
    else:
        needed = {
            *env.catalog.eks.endpoints,
            *(["ssm", "ssmmessages"] if env.eks.endpoint == "private" and env.eks.bastion_host else []),
            *(["monitoring"] if env.eks.observability else []),
        }
        yield from missing_endpoints(env, needed, engine="eks", who="the cluster")


@RULES.refuse("EKS user guide, disable-extended-support: not for a version in extended support")
def support_policy(env: Environment) -> Iterator[Problem]:
    known = env.catalog.eks.versions.get(env.kubernetes_version)
    if env.eks.support == "standard" and known and dt.date.today() > known.standard_support_until:
        yield error(
            (*_AT, "support"),
            f"standard support of Kubernetes {env.kubernetes_version} ended on {known.standard_support_until}: "
            "EKS only creates clusters of it with extended support",
            f"write support: extended, or version: '{env.catalog.eks.default}'",
        )


@RULES.add
def unreachable_private_api(env: Environment) -> Iterator[Problem]:
    eks = env.eks
    if eks.endpoint == "private" and eks.bastion_host is None:
        yield info(
            (*_AT, "bastion_host"),
            "the API is private, and the stack has no bastion host: `trn` works only from inside the VPC",
            "remove bastion_host: null, or use your own VPN or peering",
            value="null",
        )
    if eks.endpoint == "public" and eks.bastion_host is not None and "bastion_host" in eks.model_fields_set:
        yield warning((*_AT, "bastion_host"), "a public endpoint needs no bastion host: none is created", "remove it")


@RULES.refuse("EKS user guide, cluster-endpoint: no private addresses; promise: no open API of Kubernetes")
def open_api(env: Environment) -> Iterator[Problem]:
    cidrs = env.eks.public_cidrs
    for i, cidr in enumerate(cidrs):
        if is_placeholder(cidr):
            continue
        at, network = (*_AT, "public_cidrs", i), IPv4Network(cidr)
        if any(network.subnet_of(private) for private in PRIVATE):
            text = "private addresses do not appear on the internet, and inside the VPC the API is always reachable"
            yield error(at, text, "give your public network, for example 203.0.113.0/24")
        elif network.prefixlen < WIDEST_NETWORK:
            text = "this opens the Kubernetes API to a large part of the internet"
            yield error(at, text, "give your own network, for example 203.0.113.0/24, or write endpoint: private")


@RULES.refuse("EKS API, KubernetesNetworkConfigRequest: private, /12 to /24, apart from the VPC")
def service_network_overlap(env: Environment) -> Iterator[Problem]:
    cidr, at = env.eks.service_cidr, (*_AT, "service_cidr")
    if cidr is None:
        if env.service_cidr is None:
            text = "the VPC and its peerings leave no private /16 network for the cluster's services"
            yield error(at, text, "set a smaller network that overlaps none of them, for example 10.100.0.0/20")
        return
    if is_placeholder(cidr):
        return
    own = IPv4Network(cidr)
    if own.prefixlen not in SERVICE_PREFIXES or not any(own.subnet_of(n) for n in PRIVATE[:3]):
        text = f"EKS requires a /{SERVICE_PREFIXES[0]} to /{SERVICE_PREFIXES[-1]} network in {join_words(PRIVATE[:3], 'or')} for services"
        yield error(at, text, "write such a network, for example 172.20.0.0/16")
    elif taken := [vpc for vpc in env.network.vpc_cidrs if own.overlaps(IPv4Network(vpc))]:
        yield error(at, f"it overlaps with the VPC's {taken[0]}", "write another network, for example 172.20.0.0/16")
    else:
        for peer in env.network.peerings:
            for theirs in (each for each in peer.known_networks if own.overlaps(each)):
                text = f"it overlaps with {theirs} of {peer.vpc_id}: pods cannot reach these addresses of the peer"
                yield warning(
                    at, text, "write another network before the cluster is created; it cannot be changed later"
                )


@RULES.refuse("Kubernetes, reference/access-authn-authz/admission-controllers: none of these is ever deleted")
def reserved_namespace(env: Environment) -> Iterator[Problem]:
    if env.eks.namespace in RESERVED_NAMESPACES:
        text = "this namespace is reserved for the system or a plug-in"
        yield error((*_AT, "namespace"), text, "write another name, for example training")


@RULES.refuse("Kueue, reference/kueue.v1beta2: borrowingLimit is not below 0; stack: groups and teams that are there")
def queue_shares(env: Environment) -> Iterator[Problem]:
    sizes = {group.name: group.max_nodes for _, group in groups(env)}
    given = dict.fromkeys(sizes, 0)
    for i, team in enumerate(env.eks.queues):
        at: KeyPath = (*_AT, "queues", i)
        if team.namespace in (*RESERVED_NAMESPACES, env.eks.namespace):
            text = "this namespace is reserved for the system or a plug-in, or is the jobs' own"
            yield error((*at, "namespace"), text, "write another name, for example speech")
        for key, shares in (("nodes", team.nodes), ("max_nodes", team.max_nodes)):
            for name, nodes in shares.items():
                if name not in sizes:
                    yield error((*at, key, name), "no node group has this name", f"write {near(name, sizes)}")
                elif nodes > sizes[name]:
                    text = f"node group {name} has at most {sizes[name]} nodes: jobs would wait for others that never start"
                    yield warning(
                        (*at, key, name), text, f"write at most {sizes[name]}, or raise max_nodes of the group"
                    )
        for name, nodes in team.nodes.items():
            most = team.max_nodes.get(name, nodes)
            if most < nodes:
                yield error((*at, "max_nodes", name), f"the team's own nodes are {nodes}", f"write at least {nodes}")
            elif name in sizes and nodes <= sizes[name] < (total := given[name] + nodes):
                text = f"the teams so far have {total} nodes of {name} of their own, and the group has at most {sizes[name]}"
                yield warning((*at, "nodes", name), text, "lower the teams' nodes, or raise max_nodes of the group")
            given[name] = given.get(name, 0) + nodes
    for i in duplicates(team.namespace for team in env.eks.queues):
        yield error((*_AT, "queues", i, "namespace"), "two teams have this namespace", "keep one")
    known = {env.eks.namespace, *(team.namespace for team in env.eks.queues)}
    for i, access in enumerate(env.eks.access):
        for unknown in (name for name in access.namespace or () if name not in known):
            text = f"{unknown} is the namespace of no team in eks.queues"
            yield error((*_AT, "access", i, "namespace"), text, f"write {near(unknown, known)}")
        if access.namespace and access.policy == "cluster-admin":
            text = "cluster-admin is for the whole cluster"
            yield error((*_AT, "access", i, "namespace"), text, "remove it, or write policy: admin")


@RULES.add
def first_pull_without_internet(env: Environment) -> Iterator[Problem]:
    """ECR user guide, "Considerations for Amazon ECR VPC endpoints" (2026-11)."""
    mirror = env.eks.mirror
    own = [*mirror.charts.values(), *mirror.images.values()]
    if not env.network.reaches_internet and any(".dkr.ecr." in address for address in own):
        yield info(
            (*_AT, "mirror"),
            "if these are pull-through caches of ECR, the first pull of an image fails without a way to the internet; later pulls, and "
            "repositories with copies, do not need one",
            "pull each image and chart once from a network with internet, or copy them",
        )


@RULES.refuse("stack: it installs the catalogue's")
def unknown_addon(env: Environment) -> Iterator[Problem]:
    known = env.catalog.eks.addons
    for name, version in env.eks.addon_versions.items():
        at = (*_AT, "addon_versions", name)
        if name not in known:
            yield error(at, "the stack does not install an add-on of this name", f"write {near(name, known)}")
        elif name == "vpc-cni" and _release(version) < EFA_ONLY_CNI and any(_efa_only(env)):
            oldest = ".".join(map(str, EFA_ONLY_CNI))
            yield warning(
                at,
                f"the VPC CNI before {oldest} does not support EFA-only interfaces, which {join_words(_efa_only(env))} uses",
                "remove it, or write efa_layout: efa",
            )


@RULES.refuse("Kubernetes releases, version-skew-policy: not newer, and at most three minor versions older")
def kube_proxy_version(env: Environment) -> Iterator[Problem]:
    version, cluster = env.eks.addon_versions.get("kube-proxy"), env.kubernetes_version
    if version is None:
        return
    at = (*_AT, "addon_versions", "kube-proxy")
    known = env.catalog.eks.addons["kube-proxy"].versions.get(cluster)
    fix = f"write {known}" if known else f"write a version v{cluster}.x, or remove it for EKS's default"
    behind = _minor(cluster) - _release(version)[1]
    if behind < 0:
        yield error(at, f"kube-proxy must not be newer than the control plane, Kubernetes {cluster}", fix)
    elif behind > KUBE_PROXY_BEHIND:
        text = f"kube-proxy must not be more than {KUBE_PROXY_BEHIND} minor versions older than Kubernetes {cluster}"
        yield error(at, text, fix)
    elif behind:
        yield warning(at, f"kube-proxy is older than the control plane, Kubernetes {cluster}", fix)


@RULES.add
def incompatible_plugins(env: Environment) -> Iterator[Problem]:
    plugins = env.eks.plugins
    if plugins.node_recovery and plugins.node_monitoring:
        yield warning(
            (*_AT, "plugins", "node_recovery"),
            "with node_monitoring, EKS's node repair already replaces nodes with failed devices: both would replace the same node",
            "write node_recovery: false, or node_monitoring: false",
        )
    if plugins.neuron_scheduler:
        text = "jobs of `trn submit` use whole nodes and do not need it. It is only for your own pods that use a part of a node"
        yield info((*_AT, "plugins", "neuron_scheduler"), text, "remove it if you have no such pods")
    if not plugins.autoscaler:
        text = "a job in the queue does not wait for its nodes: its pods wait, until its node group has nodes for all of them"
        command = "aws eks update-nodegroup-config --cluster-name CLUSTER --nodegroup-name GROUP --scaling-config desiredSize=N"
        yield info(
            (*_AT, "plugins", "autoscaler"),
            text,
            f"write autoscaler: true, or min_nodes of the node group, or run `{command}`; fewer nodes end the oldest, whatever runs on them",
        )


def _minor(version: str) -> int:
    return int(version.partition(".")[2])


def _release(version: str) -> tuple[int, ...]:
    return numbers(version.removeprefix("v").partition("-")[0])


def _efa_only(env: Environment) -> list[str]:
    """The node groups that have EFA-only interfaces."""
    known = env.catalog.instances
    return [
        g.name
        for _, g in groups(env)
        if g.efa_layout != "efa" and g.instance_type in known and known[g.instance_type].efa_of(g.efa)
    ]


@RULES.refuse("EKS user guide, creating-access-entries: roles and users of any account, none service-linked")
def principal_kind(env: Environment) -> Iterator[Problem]:
    for i, access in enumerate(env.eks.access):
        at: KeyPath = ("eks", "access", i, "principal")
        found = principal(access.principal)
        if found is None:
            text = "access entries are for IAM roles and users only"
            yield error(at, text, "write a role, for example arn:aws:iam::111122223333:role/Researcher")
        elif found.session:
            text = "this is a session of a role, not the role, whose path it does not show"
            yield error(at, text, f"write the ARN that this prints: {found.look_up}")
        elif found.lacks_its_path:
            text = f"{_NO_PATH}: EKS refuses it, and the stack is rolled back"
            yield error(at, text, f"write the ARN that this prints: {found.look_up}")
        elif found.path.startswith("aws-service-role/"):
            text = "EKS takes no service-linked role in an access entry, and the stack would be rolled back"
            yield error(at, text, "give a role that people or programs of yours assume")


@RULES.add
def user_without_path(env: Environment) -> Iterator[Problem]:
    """IAM compares these patterns with the role's ARN, path and all, also where a session asks."""
    for i, user in enumerate(env.eks.users):
        found = principal(user)
        if found and found.kind == "role" and not found.path and _may_be_sso(found.name):
            own = f"arn:{found.partition}:iam::{found.account}:role/{SSO_PATH}*{found.name}"
            yield warning(("eks", "users", i), f"{_NO_PATH}: it matches no one", f"write {own}")


def _may_be_sso(pattern: str) -> bool:
    """Return whether a pattern fits names of Identity Center's roles. The text before its first wildcard decides."""
    begin = pattern.partition("*")[0].partition("?")[0]
    return begin.startswith(SSO_NAME) or (begin.startswith("AWSReserved") and SSO_NAME.startswith(begin))


@RULES.add
def too_many_users(env: Environment) -> Iterator[Problem]:
    size = _TRUST_WITHOUT_USERS + sum(len(f'"{user}",') for user in env.eks.users)
    if size > TRUST_POLICY:
        yield warning(
            ("eks", "users"),
            f"the trust policy of the role that `trn` takes has {size:,} characters, and IAM accepts {TRUST_POLICY:,} where the account's quota "
            "was not raised: the deployment would fail",
            "name several users by one pattern with *, or raise IAM's quota `Role trust policy length` first",
            value=f"{len(env.eks.users)} users",
        )
