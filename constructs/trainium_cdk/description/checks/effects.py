"""Settings without an effect: what they describe is not there, because of another setting. The cluster would differ from what was asked
for, or a later reader would believe that it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from trainium_cdk.description.checks.rule import Rules, info, join_words, queues, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.base import Settings
from trainium_cdk.description.settings.inventory import inventory
from trainium_cdk.problems import KeyPath

RULES = Rules()


class UnusedSettings(NamedTuple):
    """Settings of one section that have no effect in some environments.

    Attributes:
        section: where they are.
        keys: their names in it.
        applies: whether they have no effect in an environment.
        reason: it which follows "it has no effect: ".
        fix: what to write, other than "remove it".
        engine: whose stacks alone it concerns. Default: the section's, else all.
    """

    section: KeyPath
    keys: tuple[str, ...]
    applies: Callable[[Environment], bool]
    reason: str
    fix: str = ""
    engine: str | None = None


def _without_slurm(env: Environment) -> bool:
    return not env.slurm_sections.keys() & set(env.engines)


def _nothing_on_demand(env: Environment) -> bool:
    return all(group.capacity_type != "on-demand" or group.reservation for group in env.eks.node_groups)


UNUSED = (
    UnusedSettings(
        ("registry",),
        ("keep_images", "immutable_tags"),
        lambda env: not env.registry.enabled,
        "no registry is created",
        "write registry.enabled: true",
    ),
    UnusedSettings(
        ("bootstrap",),
        ("venv",),
        _without_slurm,
        "jobs on EKS run in an image, without a virtual environment of the nodes",
        engine="eks",
    ),
    UnusedSettings(
        ("bootstrap",),
        ("pip_packages",),
        _without_slurm,
        "nodes on EKS have no virtual environment",
        "build an image with the packages (trn image build), or name them in each job",
        "eks",
    ),
    UnusedSettings(
        ("bootstrap",),
        ("pip_packages",),
        lambda env: env.framework == "none" and not _without_slurm(env),
        "with framework: none there is no virtual environment in which to install them",
        "choose a framework",
    ),
    UnusedSettings(
        ("observability",),
        ("alarm_topic", "job_topic"),
        lambda env: not env.eks.plugins.autoscaler,
        "without eks.plugins.autoscaler nothing counts jobs and nodes, and nothing is sent",
        "write eks.plugins.autoscaler: true",
        "eks",
    ),
    UnusedSettings(
        ("eks", "plugins"),
        ("node_recovery",),
        lambda env: not env.eks.plugins.node_problem_detector,
        "it is a part of the node problem detector, which is off",
        "write eks.plugins.node_problem_detector: true",
    ),
    UnusedSettings(
        ("bootstrap",),
        ("scripts",),
        _without_slurm,
        "only nodes of Slurm run them",
        "use eks.node_groups[].user_data",
        "eks",
    ),
    UnusedSettings(
        ("eks", "scaling"),
        ("idle_minutes", "capacity_minutes", "start_minutes", "retry_minutes", "reserve"),
        lambda env: not env.eks.plugins.autoscaler,
        "without eks.plugins.autoscaler no nodes are started or stopped for jobs",
        "write eks.plugins.autoscaler: true",
    ),
    UnusedSettings(
        ("eks", "scaling"),
        ("reserve",),
        lambda env: env.eks.plugins.autoscaler and _nothing_on_demand(env),
        "no node group starts nodes on demand",
    ),
    UnusedSettings(
        ("eks",),
        ("ami_release",),
        lambda env: env.eks.has_own_images,
        "every node group has a custom_ami",
        "remove a custom_ami",
    ),
)


@RULES.add
def settings_without_effect(env: Environment) -> Iterator[Problem]:
    for unused in UNUSED:
        section = _section(env, unused.section)
        if section is None or not unused.applies(env):
            continue
        for key in unused.keys:  # the default may be written anywhere
            if getattr(section, key) != type(section).model_fields[key].default:
                yield _no_effect((*unused.section, key), unused.reason, unused.fix, engine=unused.engine)


@RULES.add
def mirror_without_use(env: Environment) -> Iterator[Problem]:
    mirror, installed = env.eks.mirror, env.eks_charts
    asks = {"volcano": "write eks.plugins.volcano: true", "efa": "use a node group with EFA"}
    for name in mirror.charts:
        if name not in installed:
            yield _no_effect(("eks", "mirror", "charts", name), "this chart is not installed", asks.get(name, ""))
    if env.bootstrap.neuron_release not in (None, *env.catalog.releases):
        return  # another rule reports it
    names = [image for chart in installed.values() for image in chart.images.values()]
    names += [env.catalog.eks.shell_image, env.catalog.container(env.release, env.framework) or ""]
    hosts = sorted({name.partition("/")[0] for name in names if name})
    for prefix, address in mirror.images.items():
        used = any(f"{name}/".startswith(f"{prefix}/") or name.startswith(f"{prefix}:") for name in names)
        if not used and ".dkr.ecr." not in address:  # jobs may pull their own images from a cache in ECR that is named
            why = f"the stack pulls no image whose name begins with it, only images of {join_words(hosts)}"
            yield _no_effect(("eks", "mirror", "images", prefix), why)


@RULES.add
def addon_version_without_use(env: Environment) -> Iterator[Problem]:
    known, installed = env.catalog.eks.addons, env.eks_addons
    asks = {
        "efs": "set storage.efs",
        "fsx": "set storage.fsx",
        "eks-node-monitoring-agent": "write eks.plugins.node_monitoring: true",
        "amazon-cloudwatch-observability": "write eks.observability: {}",
    }
    for name in env.eks.addon_versions:
        if name in known and name not in installed:
            fix = asks.get(known[name].file_system or name, "")
            yield _no_effect(("eks", "addon_versions", name), "this add-on is not installed", fix)


@RULES.add
def missing_disks(env: Environment) -> Iterator[Problem]:
    """All types in the catalogue's data have disks, but a user may add others."""
    catalog = env.catalog.instances
    why = "its instance types have no NVMe disks"
    for at, queue in queues(env):
        kinds = [catalog[r.instance_type] for r in queue.compute_resources if r.instance_type in catalog]
        given = "local_storage_dir" in queue.model_fields_set and queue.local_storage_dir
        if given and kinds and not any(kind.nvme.count for kind in kinds):
            yield _no_effect((*at, "local_storage_dir"), why)


@RULES.add
def nat_gateway_of_one_zone(env: Environment) -> Iterator[Problem]:
    network = env.network
    if network.existing or network.nat != "per-zone":
        return
    for engine in env.engines:
        zones = inventory(env, engine).zone_ids
        if len(zones) == 1:
            why = f"the network has one zone, {zones[0]}, and so one NAT gateway, as with nat: one"
            fix = "list several zones in network.zone_ids, or write nat: one"
            yield info(("network", "nat"), f"it has no effect: {why}", fix, engine=engine)


def _section(env: Environment, at: KeyPath) -> Settings | None:
    found = env
    for name in at:
        found = getattr(found, str(name))
    return found


def _no_effect(at: KeyPath, why: str, fix: str = "", *, engine: str | None = None) -> Problem:
    return warning(at, f"it has no effect: {why}", f"remove it, or {fix}" if fix else "remove it", engine=engine)
