"""The numbers of a job on a cluster: its fleet, its workers, its global batch size. Raises JobError if it cannot work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from trainium_cdk.client.jobs import packages
from trainium_cdk.client.jobs.models import Batch as Batch
from trainium_cdk.client.jobs.models import Job
from trainium_cdk.client.jobs.models import Plan as Plan
from trainium_cdk.client.jobs.models import StageName as StageName
from trainium_cdk.description import engines
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.constants import ULTRASERVER
from trainium_cdk.description.catalog.lookup import BLOCK, CALCULATOR
from trainium_cdk.description.catalog.models import TITLES
from trainium_cdk.errors import JobError, OutputsError
from trainium_cdk.text import join_words

if TYPE_CHECKING:
    from trainium_cdk.description.catalog import Stack
    from trainium_cdk.description.catalog.stack import FrameworkChoice
    from trainium_cdk.description.outputs import Cluster, Fleet

_FRAMEWORKS: dict[str, FrameworkChoice] = {"torch-xla": "torch-xla", "torch-native": "torch-native", "jax": "jax"}
_DEPLOYED = "deployed"


def plan(job: Job, cluster: Cluster) -> Plan:
    """Fit a job to a cluster.

    Raises:
        JobError: it does not fit; the message names the value and what would fit.
    """
    alike = _fleets(job, cluster)
    if not alike[0].devices:
        _without_trainium(job, alike[0])
    fleet = _part(job, cluster, _with_lnc(job, cluster, alike[0].model_copy(update={"nodes": _nodes(alike)})))
    if job.nodes > 1 and fleet.devices and fleet.efa == 0:
        raise JobError(
            f"nodes is {job.nodes}, but {fleet.instance_type} in queue {fleet.queue} has no EFA: training over "
            f"several nodes cannot work. Use --nodes 1{packages.with_efa(job, cluster, fleet)}"
        )
    if job.spmd and 0 < fleet.cores < job.processes_per_node and fleet.devices:
        raise JobError(
            f"{job.processes_per_node} processes are to start on each node, but a node of queue {fleet.queue} has {fleet.cores} NeuronCores, and each "
            f"process needs one. Use --tasks-per-node {fleet.cores} or less"
        )
    _image(job, cluster)
    _supported(job, cluster, fleet)
    if job.PACKAGES:
        packages.check(job, cluster)
    notes = version_notes(job.image, cluster, fleet) if fleet.devices else []
    notes += _other_framework(job, cluster) if fleet.devices else []
    if job.spmd and fleet.devices and (unused := fleet.cores % job.processes_per_node):
        notes.append(
            f"{unused} of {fleet.cores} NeuronCores of each node stay unused: each process gets {fleet.cores // job.processes_per_node}"
        )
    if fleet.ultraserver and job.nodes > 1:
        notes.append(ULTRASERVER)
    batch = job.batch(fleet, notes)
    rest = [f for f in cluster.queue(fleet.queue) if f not in alike]
    same = [f for f in rest if f.resource in {f.resource for f in alike}]  # of other queues, in your own partition
    if job.nodes > 1 and (other := next((f for f in same if f.instance_type == fleet.instance_type), None)):
        raise JobError(
            f"nodes is {job.nodes}, but queue {fleet.queue} has {fleet.resource} of {fleet.home} and of {other.home}, which Slurm cannot tell "
            f"apart, and EFA does not cross their subnets. Use --queue {fleet.home}, or rename a compute resource"
        )
    own = [f for f in cluster.fleets if f.capacity_type != "capacity-block" or f.queue == fleet.queue]
    cheapest = min(own, key=lambda f: (f.cores, f.queue != fleet.queue))
    made = Plan(
        job=job,
        cluster=cluster,
        fleet=fleet,
        batch=batch,
        prepares_on=cluster.cpu or cheapest,
        constraint=fleet.instance_type if same else "|".join(f.resource for f in alike) if rest else None,
        notes=tuple(notes),
    )
    if job.resume_from:
        _check_resume(made)
    rights = _may_write(made)
    if "prepare" in made.stages and not cluster.containers:
        made = replace(made, prepared=_where_prepared(cluster, made.prepares_on))
    return replace(made, notes=(*made.notes, *rights, *(job.check(made) or ())))


def _without_trainium(job: Job, cpu: Fleet) -> None:
    """Refuses what cannot run on nodes without Trainium."""
    reason = ""
    if job.NEEDS_TRAINIUM:
        reason = f"{job.kind} trains on NeuronCores. Use another queue, or submit your own script to {cpu.queue}"
    elif job.precompile:
        reason = "precompile runs the graphs of Trainium nodes there. Remove --precompile, or use another queue"
    elif job.devices is not None:
        reason = f"devices is {job.devices}, a number of Trainium devices. Remove --devices, or use another queue"
    elif job.lnc is not None:
        reason = f"lnc is {job.lnc}, a number of NeuronCores. Remove --lnc, or use another queue"
    if reason:
        raise JobError(f"queue {cpu.queue} has {cpu.instance_type} nodes, without Trainium, but {reason}")


def _may_write(plan: Plan) -> list[str]:
    """Notes about addresses in S3 to which its stack does not let jobs write. Other policies of yours may.

    Raises:
        JobError: it writes no checkpoints.
    """
    job, cluster = plan.job, plan.cluster
    if job.keep and job.keep != "no" and job.CHECKPOINTS is None:
        raise JobError(f"keep is {job.keep}, but {job.kind} writes no checkpoints. Remove --keep")
    pairs = (("keep", plan.keep, cluster.keep), ("cache", plan.shared_cache, cluster.cache))
    return [
        f"{name} is {given}, where {cluster.stack} does not let jobs write. If no other policy does, write jobs: {{{name}: {given}}} in the "
        "environment file, and deploy"
        for name, given, allowed in pairs
        if given and not f"{given.rstrip('/')}/".startswith(f"{allowed or None}/")
    ]


def obstacle(kind: type[Job], cluster: Cluster) -> str:
    """Describe why no job of a kind can run on a cluster, whatever its options: its instances, framework, Neuron release, packages; else empty."""
    job = kind.model_construct(kind=str(kind.model_fields["kind"].default))
    reasons = []
    for fleet in cluster.fleets:
        try:
            _image(job, cluster)
            _supported(job, cluster, fleet)
            packages.check(job, cluster)
        except JobError as e:
            reasons.append(str(e))
        else:
            return ""
    return reasons[0] if reasons else f"{cluster.stack} has no nodes"


def _supported(job: Job, cluster: Cluster, fleet: Fleet) -> None:
    """Check that the kind runs with the framework, the Neuron release and the instance family."""
    from trainium_cdk.description.catalog.models import within

    if job.FAMILIES and fleet.family not in job.FAMILIES:
        fit = [f.queue for f in cluster.fleets if f.family in job.FAMILIES]
        raise JobError(
            f"{job.kind} runs on {', '.join(job.FAMILIES)}, but queue {fleet.queue} has {fleet.instance_type}. "
            f"{f'Use --queue {fit[0]}' if fit else 'Use a cluster with such nodes'}, or {packages.other_kinds(cluster, fleet.instance_type)}"
        )
    release, has, fix = cluster.neuron_release, cluster.stack, ""
    if job.image:
        from trainium_cdk.description.catalog import Catalog

        known = Catalog.load().images.get(job.image)
        if known and job.needs_framework and known.framework not in job.FRAMEWORKS:
            raise JobError(
                f"image is {job.image}, which has {known.framework}, but {job.kind} needs {' or '.join(job.FRAMEWORKS)}. Use another image"
            )
        sdk = Catalog.sdk_of(job.image)
        if sdk is None:
            if job.needs_framework and cluster.neuron_driver:
                _driver_fits(job, cluster, fleet)
            return  # the image brings its own framework and Neuron release
        release, has, fix = sdk, f"image {job.image}", "Use another image"
    elif job.needs_framework and cluster.framework not in job.FRAMEWORKS:
        raise JobError(
            f"{job.kind} needs framework {' or '.join(job.FRAMEWORKS)}, but the nodes of {cluster.stack} have {cluster.framework}. "
            f"{packages.how_to_deploy(job, cluster)}; or {packages.other_kinds(cluster, fleet.instance_type)}"
        )
    first, before = job.RELEASES
    if not within(release, *job.RELEASES):
        bounds = " and ".join([*([f"from {first}"] if first else []), *([f"before {before}"] if before else [])])
        raise JobError(
            f"{job.kind} runs with Neuron SDK releases {bounds}, but {has} has {release}. "
            f"{fix or packages.how_to_deploy(job, cluster)}; or {packages.other_kinds(cluster, fleet.instance_type)}"
        )


def _driver_fits(job: Job, cluster: Cluster, fleet: Fleet) -> None:
    """Check that the nodes' driver is compatible with a Neuron release that the kind runs with: an image of the user's own has one of
    them, which is not known, and the driver is the nodes'."""
    from trainium_cdk.description.catalog import Catalog, driver_fits
    from trainium_cdk.description.catalog.models import numbers, within

    known = Catalog.load()
    able = [
        release
        for release in known.releases.values()
        if within(release.version, *job.RELEASES)
        and any(name in job.FRAMEWORKS and fleet.family in one.families for name, one in release.frameworks.items())
    ]
    if not able or any(driver_fits(known, cluster.neuron_driver, release.version) for release in able):
        return
    newest = max(able, key=lambda release: (not release.only_named, numbers(release.version)))
    raise JobError(
        f"image is {job.image}, and {job.kind} runs with Neuron SDK {newest.version}, whose runtime {newest.runtime} is for driver "
        f"{newest.dkms}, but the nodes of {cluster.stack} have driver {cluster.neuron_driver} (for {cluster.framework}). "
        f"{packages.how_to_deploy(job, cluster)}; or {packages.other_kinds(cluster, fleet.instance_type)}"
    )


def _image(job: Job, cluster: Cluster) -> None:
    if job.image and not cluster.containers:
        title = engines.get(cluster.engine).title
        raise JobError(f"image is {job.image}, but {cluster.stack} runs {title}, which starts no containers. Remove it")
    for name in ("account", "qos"):
        if (value := getattr(job, name)) and cluster.containers:
            raise JobError(
                f"{name} is {value}, but {cluster.stack} runs Kubernetes, which keeps no accounts. Use --queue and --priority"
            )
    if job.sbatch and cluster.containers:
        raise JobError(
            f"sbatch is {job.sbatch[0]}, but {cluster.stack} runs Kubernetes, and no Slurm. Remove it; --queue and --priority say where it waits"
        )
    if job.past_block_end and cluster.containers:
        raise JobError(
            f"past_block_end is set, but {cluster.stack} runs Kubernetes, where EKS itself ends the nodes of a block. Remove it"
        )
    if job.array and "%" in job.array and cluster.containers:
        every, _, most = job.array.partition("%")
        raise JobError(
            f"array is {job.array}, but {cluster.stack} runs Kubernetes, whose queue (Kueue) limits the nodes of a queue, not the members of "
            f"an array. Write {every}; with --priority low other jobs go first, and max_nodes of a team (eks.queues) limits its nodes, here "
            f"to {int(most) * job.nodes}"
        )
    if job.priority and not cluster.containers:
        title = engines.get(cluster.engine).title
        raise JobError(
            f"priority is {job.priority}, but {cluster.stack} runs {title}, which has no priority classes of Kubernetes. Remove it"
        )
    if cluster.containers and not (job.image or cluster.image):
        raise JobError(
            f"no container image: the catalogue has none of Neuron SDK {cluster.neuron_release} for training. Build one "
            f"({_how_to_build(cluster)}), and give the name that it prints as --image"
        )


def _how_to_build(cluster: Cluster) -> str:
    """The command that builds a training image for a cluster."""
    from trainium_cdk.description.catalog import Catalog

    return f"trn image build {Catalog.load().image_example(cluster.neuron_release, cluster.framework)}"


def _fleets(job: Job, cluster: Cluster) -> tuple[Fleet, ...]:
    """The fleets of one queue that the job may use: all of the same instance type and EFA, as a reservation next to on-demand nodes."""
    try:
        every = () if job.queue or not job.instance_type else cluster.fleets
        fleets = every or cluster.queue(job.queue)
    except OutputsError as e:
        hint = f". Give one of them as --queue{_no_cpu_nodes(job, cluster)}" if cluster.fleets else ""
        raise JobError(f"{e}{hint}") from None
    if job.compute_resource:
        if cluster.containers:
            raise JobError(
                f"compute_resource is {job.compute_resource}, but {cluster.stack} runs Kubernetes. Use --queue"
            )
        found = tuple(f for f in fleets if f.resource == job.compute_resource)
        if not found:
            has = ", ".join(dict.fromkeys(f.resource for f in fleets))
            raise JobError(
                f"queue {fleets[0].queue} has no compute resource {job.compute_resource}; it has {has}. Choose one of them"
            )
        fleets = found
    if job.instance_type:
        found = tuple(f for f in fleets if f.instance_type == job.instance_type)
        if not found:
            has = ", ".join(dict.fromkeys(f.instance_type for f in fleets))
            where = f"queue {job.queue}" if job.queue else cluster.stack
            raise JobError(f"{where} has no {job.instance_type}; it has {has}. Choose one of them")
        fleets = tuple(f for f in found if f.share == bool(job.devices)) or found
    groups: dict[tuple[object, ...], list[Fleet]] = {}
    for fleet in fleets:  # node groups may be in different subnets, a queue is in one
        own = fleet.resource if cluster.containers else fleet.home
        groups.setdefault((fleet.queue, fleet.instance_type, fleet.efa, own), []).append(fleet)
    for group in groups.values():
        if job.nodes <= _nodes(group):
            return tuple(group)
    most = max(groups.values(), key=_nodes)
    first = most[0]
    noun = f"{engines.get(cluster.engine).nodes_noun} {first.resource}" if first.devices else "cpu_queue"
    raise JobError(
        f"nodes is {job.nodes}, but queue {first.queue} has at most {_nodes(most)} of {first.instance_type}. Use "
        f"--nodes {_nodes(most)} or "
        f"fewer, or raise max_nodes of {noun} and deploy again"
    )


def _no_cpu_nodes(job: Job, cluster: Cluster) -> str:
    if job.queue != "cpu":
        return ""
    if cluster.containers:
        return ". On Kubernetes jobs run on Trainium nodes, and are prepared on the system nodes"
    return "" if cluster.cpu else ", or deploy with `cpu_queue: {}` for nodes without Trainium"


def _nodes(group: Iterable[Fleet]) -> int:
    return sum(fleet.nodes for fleet in group)


def _with_lnc(job: Job, cluster: Cluster, fleet: Fleet) -> Fleet:
    """The nodes as the job sees them. In pods, the nodes' device plug-in has decided already; with claims, the job decides."""
    if job.lnc is None:
        return fleet
    from trainium_cdk.description.catalog import Catalog

    kind = Catalog.load().instances.get(fleet.instance_type)
    if kind is None or job.lnc not in kind.lnc:
        can = f"runs with {join_words(kind.lnc, 'or')}" if kind else "is not in the catalogue"
        raise JobError(f"lnc is {job.lnc}, but {fleet.instance_type} of queue {fleet.queue} {can}. Remove it")
    cores = kind.logical_cores(job.lnc)
    if cluster.containers and not fleet.claims and cores != fleet.cores:
        raise JobError(
            f"lnc is {job.lnc}, but the nodes of {fleet.queue} offer {fleet.cores} NeuronCores of LNC {kind.physical_cores // fleet.cores} "
            f"to pods. Deploy the node group with `lnc: {job.lnc}`, or one with `devices: claims`, where each job chooses"
        )
    return fleet.model_copy(update={"lnc": job.lnc, "cores": cores})


def _part(job: Job, cluster: Cluster, fleet: Fleet) -> Fleet:
    """The nodes as a job sees them that takes a part of one: with the part's devices and NeuronCores, and without EFA, which connects nodes."""
    wanted, queue = job.devices, fleet.queue
    if wanted is None and not fleet.share:
        return fleet
    parts = Catalog.load().eks.claims.parts.get(fleet.instance_type, ())
    alone = [one.queue for one in cluster.fleets if not one.share]
    if wanted is None:
        whole = f", or --queue {alone[0]} for whole nodes" if alone else ""
        raise JobError(f"jobs in queue {queue} take a part of a node. Give --devices {join_words(parts, 'or')}{whole}")
    if not cluster.containers:
        raise JobError(
            f"devices is {wanted}, but {cluster.stack} runs {engines.get(cluster.engine).title}, where jobs have whole nodes. Remove --devices"
        )
    if not fleet.share:
        shared = [one.queue for one in cluster.fleets if one.share]
        fix = (
            f"use --queue {shared[0]}"
            if shared
            else f"deploy a node group with `share: true`: {cluster.stack} has none"
        )
        raise JobError(f"devices is {wanted}, but jobs in queue {queue} have whole nodes. Remove --devices, or {fix}")
    if wanted not in parts:
        whole = f", or --queue {alone[0]} for whole nodes" if wanted == fleet.devices and alone else ""
        raise JobError(
            f"devices is {wanted}, but jobs in queue {queue} take {join_words(parts, 'or')} of the {fleet.devices} devices of a "
            f"{fleet.instance_type}. Choose one of them{whole}"
        )
    if job.nodes > 1:
        raise JobError(
            f"nodes is {job.nodes}, but devices is {wanted}, and a part is of one node. Remove --nodes, or --devices"
        )
    if wanted > 1 and not fleet.efa:
        raise JobError(
            f"devices is {wanted}, but nodes of queue {queue} have no EFA, by which Neuron's driver knows connected devices. Use --devices 1, or "
            "deploy the node group without `efa: off`"
        )
    cores = fleet.cores * wanted // fleet.devices
    return fleet.model_copy(update={"devices": wanted, "cores": cores, "efa": 0})


def _check_resume(fitted: Plan) -> None:
    """Check that a job can continue from the checkpoints that it names (`--resume-from`).

    The newest complete checkpoint is copied by the stage `prepare`, so that no Trainium node waits for it, into the directory where the kind's own
    program looks for its checkpoints after a restart. The directory that it comes from is only read.

    Raises:
        JobError: its program starts from none, or they are on no shared file system of the cluster.
    """
    job, made = fitted.job, fitted.job.CHECKPOINTS
    name = job.resume_from
    if name is None:
        return
    if made is None:
        raise JobError(
            f"resume_from is {name}, but {job.kind} cannot continue from a checkpoint: it writes none. Remove --resume-from"
        )
    if name.startswith("s3://"):
        return
    mounts = fitted.cluster.mount_dirs
    if name.startswith("/") and not any(f"{name}/".startswith(f"{mount}/") for mount in mounts):
        raise JobError(
            f"resume_from is {name}, which is on no shared file system of {fitted.cluster.stack} ({', '.join(mounts)}). Copy it there "
            "(trn cp), or give the id of a job"
        )
    if job.after and name.partition("/")[0] == job.after.partition("/")[0]:
        raise JobError(
            f"{name} is given as --after and as --resume-from. Submit this job when {name} has ended, without --after"
        )


def version_notes(image: str | None, cluster: Cluster, fleet: Fleet) -> list[str]:
    """Notes for the user on the versions that a job would run with; may be empty.

    An image, a release or a driver that the catalogue does not have is not checked.

    Args:
        image: the container image that the job names, if any.

    Raises:
        JobError: the runtime in the image is not compatible with the nodes' driver.
    """
    from trainium_cdk.description.catalog import Catalog, evaluate

    known = Catalog.load()
    release = known.releases.get(cluster.neuron_release)
    if release is None:
        return []
    used = (image or cluster.image) if cluster.containers else None
    runtime = known.runtime_of(used) if used else release.runtime
    if runtime and cluster.neuron_driver:
        verdict = evaluate(known, _stack(cluster, fleet, "none", runtime))
        if verdict.part == "ami" and not verdict:
            raise JobError(
                f"{f'image is {used}' if used else f'Neuron is {release.version}'}, but {verdict.reason}. Use an image with another runtime, or deploy "
                f"{cluster.stack} with another `eks: {{ami_release: ...}}`"
            )
    if image or cluster.framework not in _FRAMEWORKS:
        return []  # the image has its own framework
    verdict = evaluate(known, _stack(cluster, fleet, _FRAMEWORKS[cluster.framework], runtime or release.runtime))
    if verdict.statement is None:
        return []
    what = "AWS does not support this" if verdict.level == "unsupported" else "AWS advises against this"
    return [f"Neuron {cluster.neuron_release} with {cluster.framework}: {what}: {verdict.statement}"]


def _other_framework(job: Job, cluster: Cluster) -> list[str]:
    """Note that a launcher is for another framework than the one of the nodes, or of the cluster's image; empty if it is not."""
    launcher = getattr(job, "launcher", "")
    needs = {"jax": "JAX", "torchrun": "PyTorch"}.get(launcher)
    known = cluster.framework in _FRAMEWORKS and not job.image
    if not needs or not known or (cluster.framework == "jax") is (launcher == "jax"):
        return []
    return [
        f"launcher is {launcher}, but {cluster.stack} has {TITLES[cluster.framework]}, not {needs} for Neuron. {needs} of --requirements alone finds "
        f"no NeuronCores. Use a cluster with {needs}"
    ]


def _stack(cluster: Cluster, fleet: Fleet, framework: FrameworkChoice, runtime: str) -> Stack:
    from trainium_cdk.description.catalog.stack import NODE_SYSTEM, Stack

    return Stack(
        cluster.engine,
        (fleet.family,),
        cluster.neuron_release,
        framework,
        cluster.os or NODE_SYSTEM,
        cluster.neuron_driver or None,
        runtime,
        ami=_DEPLOYED,
    )


def _where_prepared(cluster: Cluster, on: Fleet) -> str:
    """The nodes of Slurm that fetch what a job lacks, and the price of one; where there are no CPU nodes also the reason."""
    price = Catalog.load().describe_price(on.instance_type, cluster.region)
    why = "" if cluster.cpu else f", as {cluster.stack} has no queue of CPU nodes (cpu_queue)"
    return f"prepare runs on one {on.instance_type} of queue {on.queue} ({price}){why}, unless nothing must be fetched"


def hour_usd(fitted: Plan, catalog: Catalog) -> float | None:
    """Return the cost of a job's nodes, or of its part of one, in USD an hour, of each member where it is an array; None if the price is not known."""
    if fitted.fleet.capacity_type == "capacity-block":
        return None
    price = catalog.price(fitted.fleet.instance_type, fitted.cluster.region, fitted.job.devices)
    return None if price is None else price * fitted.job.nodes


def price(fitted: Plan, catalog: Catalog) -> str:
    """Describe `hour_usd`; where it is not known, how to learn it."""
    fleet, region, usd = fitted.fleet, fitted.cluster.region, hour_usd(fitted, catalog)
    if usd is not None:
        spot = ", without spot's discount" if fleet.capacity_type == "spot" else ""
        source = catalog.price_source(fleet.instance_type, region)
        kind = BLOCK if source and source.capacity_block else "the on-demand price"
        dated = f" of {source.date}" if source else ""
        part = "its part of a node" if fitted.job.devices else "nodes"
        return f"{usd:,.2f} USD an hour, at {kind}{dated}{spot}, {part} only: `trn cost` has the rest"
    if fleet.capacity_type == "capacity-block":
        return "price unknown: a capacity block is paid for when it is bought (`trn capacity` asks for offers)"
    return (
        f"price unknown: the catalogue has none of {fleet.instance_type} in {region}: {CALCULATOR}; or add it to the environment "
        f"file (catalog: {{prices: {{{region}: {{{fleet.instance_type}: USD}}}}}})"
    )
