"""From a job and a cluster to numbers: which fleet, how many workers, which global batch size. What cannot work is
refused here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainium_cdk.catalog import Catalog
from trainium_cdk.jobs.backend import Expected
from trainium_cdk.jobs.errors import JobError
from trainium_cdk.jobs.models import AnyJob, BertLarge, Gpt3, Script
from trainium_cdk.outputs import Cluster, Fleet, OutputsError

LAMB_NODES = 128
"""Most nodes that BERT phase 1 with LAMB and strong scaling is documented for (Neuron ParallelCluster tutorials)."""

StageName = Literal["prepare", "precompile", "train"]


@dataclass(frozen=True)
class Batch:
    """How a global batch comes together.

    Attributes:
        per_worker: sequences of one microstep of one model copy.
        accumulation: gradient accumulation microsteps.
        data_parallel: model copies.
    """

    per_worker: int
    accumulation: int
    data_parallel: int

    @property
    def global_size(self) -> int:
        """Sequences of one optimizer step."""
        return self.per_worker * self.accumulation * self.data_parallel

    def __str__(self) -> str:
        return (
            f"{self.global_size} = {self.per_worker} sequences x {self.accumulation} accumulation steps "
            f"x {self.data_parallel} data-parallel"
        )


@dataclass(frozen=True)
class BertNumbers:
    """The tutorials' numbers for one phase and optimizer of BERT-Large."""

    batch_size: int
    accumulation: int
    steps: int
    learning_rate: float
    warmup_steps: int | None = None  # None: the training script's own
    phase1_end: int = 0


# (phase, optimizer): Neuron documentation, BERT pretraining tutorial, and the scripts of aws-neuron-samples; 2026-11
BERT: dict[tuple[int, str], BertNumbers] = {
    (1, "lamb"): BertNumbers(16, 128, 7032, 6e-3),
    (1, "adamw"): BertNumbers(16, 32, 28125, 4e-4),
    (2, "lamb"): BertNumbers(2, 512, 1563, 4e-3, 781, 7032),
    (2, "adamw"): BertNumbers(2, 512, 1563, 2.8e-4, 781, 28125),
}
GPT_ACCUMULATION = 64
GPT_GLOBAL_BATCH = 1024


@dataclass(frozen=True)
class Plan:
    """A job that fits its cluster.

    Attributes:
        fleet: the nodes it runs on.
        batch: None for scripts of the user's own.
        prepare_queue: where fetching runs: the queue whose nodes have the fewest NeuronCores, for they cost least.
        constraint: Slurm feature that picks the fleet, where the queue has several.
        notes: what a user should know before it runs.
    """

    job: AnyJob
    cluster: Cluster
    fleet: Fleet
    batch: Batch | None
    prepare_queue: str
    constraint: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def workers(self) -> int:
        return self.job.nodes * self.fleet.cores

    @property
    def stages(self) -> tuple[StageName, ...]:
        """In their order; `prepare` runs only where something is yet to be fetched."""
        first: tuple[StageName, ...] = () if isinstance(self.job, Script) else ("prepare",)
        middle: tuple[StageName, ...] = ("precompile",) if self.job.precompile else ()
        return (*first, *middle, "train")

    def describe(self) -> list[str]:
        """The plan in lines for people."""
        nodes = f"{self.job.nodes} node{'s' if self.job.nodes > 1 else ''}"
        lines = [
            f"{nodes} of {self.fleet.instance_type} in queue {self.fleet.queue}, {self.fleet.cores} NeuronCores each"
        ]
        if self.batch:
            lines.append(f"global batch size {self.batch}")
        return lines + list(self.notes)


def plan(job: AnyJob, cluster: Cluster) -> Plan:
    """Fit a job to a cluster.

    Raises:
        JobError: it does not fit; the message names the value and what would fit.
    """
    fleet = _fleet(job, cluster)
    if job.nodes > 1 and fleet.efa == 0:
        raise JobError(
            f"nodes is {job.nodes}, but {fleet.instance_type} in queue {fleet.queue} has no EFA: training over "
            "several such "
            "nodes cannot work. Use --nodes 1, or a queue of an instance type with EFA, as trn1.32xlarge"
        )
    _image(job, cluster)
    needs_framework = not job.image and (job.precompile or not isinstance(job, Script))
    if cluster.framework != "torch-xla" and needs_framework:
        what = f"{job.kind} trains with" if not isinstance(job, Script) else "precompiling needs"
        raise JobError(
            f"{what} torch-xla (torch-neuronx), but the nodes of {cluster.stack} have framework "
            f"{cluster.framework}. Deploy with "
            "`bootstrap: {framework: torch-xla}`, or submit a script of your own without precompiling"
        )
    notes: list[str] = []
    batch = None
    if isinstance(job, BertLarge):
        batch = _bert(job, fleet, notes)
    elif isinstance(job, Gpt3):
        batch = _gpt(job, fleet)
    several = len({f.resource for f in cluster.queue(fleet.queue)}) > 1
    own = [f for f in cluster.fleets if f.purchase != "capacity-block" or f.queue == fleet.queue]
    cheapest = min(own, key=lambda f: (f.cores, f.queue != fleet.queue))
    return Plan(
        job=job,
        cluster=cluster,
        fleet=fleet,
        batch=batch,
        prepare_queue=cheapest.queue,
        constraint=fleet.resource if several else None,
        notes=tuple(notes),
    )


def _image(job: AnyJob, cluster: Cluster) -> None:
    if job.image and cluster.engine == "slurm":
        raise JobError(f"image is {job.image}, but {cluster.stack} runs Slurm, which starts no containers. Remove it")
    if cluster.engine == "eks" and not (job.image or cluster.image):
        raise JobError(
            f"no container image: Neuron SDK {cluster.neuron_release} comes without one for training. Build one "
            "(trn image build DIR), and give its name as --image"
        )


def _fleet(job: AnyJob, cluster: Cluster) -> Fleet:
    try:
        # on EKS a queue is one node group, and an instance type without a queue chooses among all of them
        every = cluster.engine == "eks" and job.queue is None and job.instance_type is not None
        fleets = cluster.fleets if every else cluster.queue(job.queue)
    except OutputsError as e:
        raise JobError(f"{e}. Give one of them as --queue") from None
    if job.instance_type:
        found = tuple(f for f in fleets if f.instance_type == job.instance_type)
        if not found:
            has = ", ".join(dict.fromkeys(f.instance_type for f in fleets))
            where = cluster.stack if every else f"queue {fleets[0].queue}"
            raise JobError(f"{where} has no {job.instance_type}; it has {has}. Choose one of them")
        fleets = found
    for fleet in fleets:
        if job.nodes <= fleet.nodes:
            return fleet
    most = max(fleets, key=lambda f: f.nodes)
    group = "node group" if cluster.engine == "eks" else "compute resource"
    raise JobError(
        f"nodes is {job.nodes}, but queue {most.queue} has at most {most.nodes} of {most.instance_type}. Use "
        f"--nodes {most.nodes} or "
        f"fewer, or raise max_nodes of {group} {most.resource} and deploy again"
    )


def _bert(job: BertLarge, fleet: Fleet, notes: list[str]) -> Batch:
    numbers = BERT[job.phase, job.optimizer]
    per_worker = job.batch_size or numbers.batch_size
    alone = job.accumulation or numbers.accumulation
    if job.scaling == "weak":
        return Batch(per_worker, alone, fleet.cores * job.nodes)
    if job.optimizer == "lamb" and job.phase == 1 and job.nodes > LAMB_NODES:
        raise JobError(
            f"nodes is {job.nodes}: BERT phase 1 with LAMB and strong scaling works up to {LAMB_NODES} nodes. Use "
            f"--nodes {LAMB_NODES} or "
            "fewer, or --scaling weak"
        )
    one = per_worker * alone * fleet.cores
    if alone % job.nodes:
        fits = [n for n in range(1, min(alone, fleet.nodes) + 1) if alone % n == 0]
        why = (
            "less than one is left for a node"
            if job.nodes > alone
            else f"{alone} does not divide by {job.nodes}, and the global batch size would silently change"
        )
        raise JobError(
            f"nodes is {job.nodes}: strong scaling divides the {alone} gradient accumulation steps of global "
            f"batch size {one} "
            f"among the nodes; {why}. Use {_or(fits)} nodes, or --scaling weak (global batch size {one * job.nodes})"
        )
    batch = Batch(per_worker, alone // job.nodes, fleet.cores * job.nodes)
    if batch.accumulation == 1 and alone > 1:
        notes.append(
            "one accumulation step is left for a node: its graphs differ from those with more, and compile anew"
        )
    return batch


def _gpt(job: Gpt3, fleet: Fleet) -> Batch:
    if fleet.cores % job.tensor_parallel:
        fits = [t for t in (1, 2, 4, 8, 16, 32) if fleet.cores % t == 0]
        raise JobError(
            f"tensor_parallel is {job.tensor_parallel}, but {fleet.instance_type} has {fleet.cores} NeuronCores, "
            "which do not divide by it. "
            f"Use --tensor-parallel {_or(fits)}, or another instance type"
        )
    copies = fleet.cores * job.nodes // job.tensor_parallel
    if job.scaling == "weak":
        return Batch(job.micro_batch_size, job.accumulation or GPT_ACCUMULATION, copies)
    total = job.global_batch_size or GPT_GLOBAL_BATCH
    share = job.micro_batch_size * copies
    if total % share:
        each = job.micro_batch_size * fleet.cores // job.tensor_parallel
        fits = [n for n in range(1, fleet.nodes + 1) if total % (each * n) == 0]
        use = (
            f"Use {_or(fits)} nodes, or --scaling weak"
            if fits
            else "Use another --global-batch-size, or --scaling weak"
        )
        raise JobError(
            f"nodes is {job.nodes}: global batch size {total} does not divide by {share} ({job.micro_batch_size} "
            f"sequences x {copies} "
            f"data-parallel). {use}"
        )
    return Batch(job.micro_batch_size, total // share, copies)


def _or(numbers: list[int]) -> str:
    texts = [str(n) for n in numbers]
    return " or ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]


def expected(plan: Plan, catalog: Catalog | None = None) -> Expected | None:
    """What was published for this job, scaled by the nodes where only another count was; None where nothing was."""
    job, catalog = plan.job, catalog or Catalog.load()
    if plan.fleet.instance_type != "trn1.32xlarge" or isinstance(job, Script):
        return None
    points = [p for p in catalog.throughput if p.model == job.kind]
    if isinstance(job, BertLarge):
        points = [
            p
            for p in points
            if p.phase == job.phase
            and p.optimizer in (job.optimizer, None)
            and (p.scaling == job.scaling or p.nodes == job.nodes == 1)
        ]
    if not points:
        return None
    # nearest node count by ratio; then the one that names the optimizer; then the newest SDK
    best = min(points, key=lambda p: (max(p.nodes / job.nodes, job.nodes / p.nodes), p.optimizer is None, _age(p.sdk)))
    return Expected(
        best.sequences_per_second * job.nodes / best.nodes,
        best.nodes != job.nodes,
        f"published for {best.nodes} node{'s' if best.nodes > 1 else ''}" + (f", SDK {best.sdk}" if best.sdk else ""),
    )


def _age(sdk: str | None) -> tuple[int, ...]:
    return tuple(-int(part) for part in sdk.split(".")) if sdk else (0,)
