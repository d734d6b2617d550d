"""Amazon EKS: the nodes, their labels, interfaces and images."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.checks.rule import Rules, error, groups, info, join_words, near, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.problems import KeyPath

RESERVED_NAMES = {
    "system": "this name is reserved for the system nodes",
    "default": "the group's queue has its name, and Kueue puts every job without a queue into a queue of this name",
    "root": "with Volcano the group's queue has its name, and Volcano reserves this name",
    "trn-unlimited": "Kueue knows the group's nodes by its name, and CPU and memory by this one",
}
RESERVED_LABELS = ("eks.amazonaws.com", "k8s.io", "kubernetes.io", "trainium-cdk")
_AT: KeyPath = ("eks",)


RULES = Rules()


@RULES.refuse("catalogue, instances: sizes of a logical core")
def unsupported_lnc(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        kind = env.catalog.instances.get(group.instance_type)
        if kind and group.lnc and group.lnc not in kind.lnc:
            text = f"{kind.name} supports LNC {join_words(map(str, kind.lnc), 'or')}"
            yield error((*at, "lnc"), text, f"write lnc: {kind.default_lnc}, or remove it")


@RULES.refuse("stack: it makes a queue or flavor of this name")
def reserved_node_group_name(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        if text := RESERVED_NAMES.get(group.name):
            yield error((*at, "name"), text, "write another name, for example trn")


@RULES.refuse("containers-roadmap, 1451: EKS refuses these prefixes; stack: trainium-cdk is its own")
def reserved_label(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        for key in group.labels:
            domain = key.rpartition("/")[0]
            if domain and any(domain == d or domain.endswith(f".{d}") for d in RESERVED_LABELS):
                text = f"labels of {domain} are reserved for the system"
                yield error((*at, "labels", key), text, f"write {key.rpartition('/')[2]}, or use your own domain")


@RULES.add
def efa_layout_without_use(env: Environment) -> Iterator[Problem]:
    for at, group in groups(env):
        kind = env.catalog.instances.get(group.instance_type)
        if "efa_layout" in group.model_fields_set and kind and not kind.efa_of(group.efa):
            text = "it has no effect: these nodes have no EFA interfaces"
            yield warning((*at, "efa_layout"), text, "remove it")


@RULES.refuse("EKS API, CreateNodegroup: releaseVersion is an image's; catalogue, amis: images")
def unknown_node_image(env: Environment) -> Iterator[Problem]:
    requested, version = env.eks.ami_release, env.kubernetes_version
    known = env.catalog.amis(version)
    at = (*_AT, "ami_release")
    if requested and requested in known:
        return
    if requested and known and requested < max(known):
        text = f"the catalogue has no Neuron node image of that date for Kubernetes {version}"
        yield error(at, text, f"write {near(requested, known)}")
    elif requested:
        text = "newer than every node image in the catalogue: its Neuron driver cannot be checked"
        yield warning(
            at, text, f"write {max(known)} for a known image" if known else "remove it to use EKS's newest image"
        )


@RULES.refuse("catalogue, neuron: driver of a runtime")
def missing_driver(env: Environment) -> Iterator[Problem]:
    """No known node image has a driver for the Neuron release: nodes install it, for which they need the internet."""
    known = env.bootstrap.neuron_release in (None, *env.catalog.releases)
    driver = env.node_driver if known else None
    named = [g.name for _, g in groups(env) if not g.custom_ami]
    if not driver or not named:
        return
    image, at = env.node_image, (*_AT, "ami_release")
    has = f"the newest known image, {image.version}, has Neuron driver {image.driver}" if image else "no image is known"
    text = f"{has}, and the runtime {env.release.runtime} of Neuron {env.release.version} is for driver {driver}"
    fix = f"an image with driver {driver}: node_groups[].custom_ami, or ami_release of a newer EKS image (releases of awslabs/amazon-eks-ami)"
    if env.network.reaches_internet:
        yield info(
            at,
            f"{text}. Each node of {join_words(named)} installs it when it starts, in a few minutes",
            f"to save them, give {fix}",
        )
    else:
        allow = "write network.existing.internet: true" if env.network.existing else "write nat: one"
        yield error(at, f"{text}, which nodes without access to the internet cannot install", f"{allow}, or give {fix}")


@RULES.add
def release_without_image(env: Environment) -> Iterator[Problem]:
    known = env.bootstrap.neuron_release in (None, *env.catalog.releases)
    release = env.release if known else None
    if release and not env.catalog.container(release, env.framework):
        example = env.catalog.image_example(release.version, env.framework)
        yield info(
            ("bootstrap", "neuron_release"),
            "the catalogue has no training image of this release, so that each job must name its image",
            f"after the deployment build one (`trn image build {example}`), and give its name as --image",
            value=release.version,
            engine="eks",
        )
