"""BERT-Large pre-training with PyTorch/XLA, data parallel over every NeuronCore (aws-neuron-samples, dp_bert_hf_pretrain).

Numbers: Neuron documentation, BERT pre-training tutorial, and the launch scripts next to the vendor's script; 2026-11.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from trainium_cdk.client.jobs import fetching, sent, words
from trainium_cdk.client.jobs.models import Checkpoints, Job, Scaling, Upstream
from trainium_cdk.client.jobs.packages import Packages
from trainium_cdk.client.jobs.plan import Batch, Plan
from trainium_cdk.client.jobs.words import Data, check_run_steps, check_warm_up, wrong
from trainium_cdk.description.catalog.sources import sources
from trainium_cdk.errors import JobError
from trainium_cdk.runner.spec import Only, Part, Program
from trainium_cdk.text import Text, join_words

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import Fleet

PACKAGES = Packages(
    pins=(
        "h5py==3.15.1",
        "huggingface-hub==0.24.5",
        "requests==2.31.0",
        "tensorboard==2.21.0",
        "transformers==4.44.0",
    ),
    pythons=("3.10", "3.11", "3.12"),
    megabytes=160,
)
"""What the script imports, at the versions of the vendor's requirements.txt; h5py has none there. TensorBoard is newer: the vendor's
2.14 imports pkg_resources, which setuptools no longer has. Pythons: those that tokenizers, at the version of transformers, has wheels for."""

LAMB_NODES = 128
"""The largest documented number of nodes for phase 1 with LAMB and strong scaling (Neuron ParallelCluster tutorials)."""

_TREE = sources().repositories["samples"]
_FOLDER = "torch-neuronx/training/dp_bert_hf_pretrain"
_SCRIPT = "dp_bert_large_hf_pretrain_hdf5.py"
_MODEL = "bert-large-uncased"
_PRECOMPILE_STEPS = 10
_SHARDS = "*_training_*.hdf5"
_TOO_FEW = "The training script needs a shard for each worker: use fewer nodes"
_PHASE_2 = "phase2.py"
"""What starts phase 2: only the nodes know the checkpoint that it continues from."""


class Numbers(NamedTuple):
    """The tutorials' numbers for one phase and optimizer."""

    batch_size: int
    accumulation: int
    steps: int
    learning_rate: float
    warmup_steps: int | None = None  # None: the training script's default
    cores: int = 32  # NeuronCores of the node that the numbers are meant for


# (phase, optimizer)
NUMBERS: dict[tuple[int, str], Numbers] = {
    (1, "lamb"): Numbers(16, 128, 7032, 6e-3),
    (1, "adamw"): Numbers(16, 32, 28125, 4e-4),
    (2, "lamb"): Numbers(2, 512, 1563, 4e-3, 781),
    (2, "adamw"): Numbers(2, 512, 1563, 2.8e-4, 781),
}


class BertLarge(Job):
    """BERT-Large pre-training. Defaults are the tutorials': phase 1 with LAMB, global batch size 65536 on 32-core nodes."""

    TITLE: ClassVar[str] = "BERT-Large pre-training, phases 1 and 2"
    FAMILIES: ClassVar[tuple[str, ...]] = ("trn1", "trn1n", "trn2", "trn2u")
    RELEASES: ClassVar[tuple[str, str]] = ("2.28.0", "")
    UPSTREAM: ClassVar[Upstream | None] = Upstream(
        "aws-neuron/aws-neuron-samples", _TREE.commit, f"{_FOLDER}/{_SCRIPT}", "legacy: PyTorch/XLA"
    )
    PACKAGES: ClassVar[Packages | None] = PACKAGES
    CHECKPOINTS: ClassVar[Checkpoints | None] = Checkpoints("output", pattern="ckpt_*.pt", last="zip", forget="others")

    kind: Literal["bert-large"] = "bert-large"
    phase: Literal[1, 2] = Field(
        default=1, description="1 (sequence length 128) or 2 (512, from a checkpoint of phase 1)."
    )
    optimizer: Literal["lamb", "adamw"] = Field(default="lamb", description="Optimizer.")
    scaling: Scaling = Field(
        default="strong",
        description="strong: keep the global batch size and divide the accumulation among the nodes; weak: keep each node's work.",
    )
    batch_size: int | None = Field(
        default=None, ge=1, description="Sequences of one microstep of one worker. Default: 16; phase 2: 2."
    )
    accumulation: int | None = Field(
        default=None,
        ge=1,
        description="Gradient accumulation microsteps of one node alone. Default: lamb 128, adamw 32, phase 2 512.",
    )
    steps: int | None = Field(
        default=None,
        ge=1,
        description="Optimizer steps of the whole training. Default: lamb 7032, adamw 28125, phase 2 1563.",
    )
    run_steps: int | None = Field(default=None, ge=1, description="Stop after this many steps. Default: all.")
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Peak learning rate. Default: lamb 6e-3, adamw 4e-4; phase 2 4e-3 and 2.8e-4.",
    )
    warmup_steps: int | None = Field(default=None, ge=0, description="Warm-up steps. Default: 2000; phase 2: 781.")
    data: Data | None = Field(
        default=None,
        description="Tokenized shards: a directory on the cluster, s3://bucket/file.tar or s3://bucket/prefix. Default: Wikipedia.",
    )
    checkpoint: (
        Annotated[
            str,
            Text(
                r"^(/[^\x00\n]*/ckpt_\d+\.pt|[a-z0-9][a-z0-9.-]{0,80})$",
                "a file ckpt_<step>.pt on the cluster, or the id of the job that wrote it",
                "/efs/ckpt_7032.pt",
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="Phase 2: a ckpt_<step>.pt file, or the id of the job that wrote it.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.phase == 2 and self.checkpoint is None:
            raise wrong(
                "phase 2 starts from a checkpoint of phase 1. Give checkpoint (--checkpoint): a ckpt_<step>.pt file on the cluster, "
                "or the id of the job that wrote it"
            )
        if self.phase == 1 and self.checkpoint is not None:
            raise wrong("phase 1 starts without a checkpoint. Remove checkpoint, or choose phase 2")
        check_warm_up(self.warmup_steps, self.steps or self._numbers.steps)
        check_run_steps(self.run_steps, self.steps or self._numbers.steps)
        return self

    @property
    def _corrections(self) -> tuple[sent.Correction, ...]:
        if self.phase == 2:  # restores weights only
            return ("limit_metadata",)
        exact: tuple[sent.Correction, ...] = (
            "limit_metadata",
            "keep_random_state",
            "keep_learning_rate",
            "find_data_here",
        )
        return (*exact, "keep_fp32_state") if self.optimizer == "adamw" else exact

    @property
    def _numbers(self) -> Numbers:
        return NUMBERS[self.phase, self.optimizer]

    @property
    def total_steps(self) -> int:
        return self.run_steps or self.steps or self._numbers.steps

    def batch(self, fleet: "Fleet", notes: list[str]) -> Batch:
        numbers = self._numbers
        per_worker = self.batch_size or numbers.batch_size
        alone = self.accumulation or numbers.accumulation
        if self.phase == 2:
            notes.append(
                "phase 2 continues after a restart from its last checkpoint's weights only: the vendor's script restores neither the "
                "optimizer's state nor the learning rate's schedule there"
            )
        if self.scaling == "weak":
            return Batch(per_worker, alone, fleet.cores * self.nodes)
        if self.optimizer == "lamb" and self.phase == 1 and self.nodes > LAMB_NODES:
            raise JobError(
                f"nodes is {self.nodes}: BERT phase 1 with LAMB and strong scaling works up to {LAMB_NODES} nodes. Use "
                f"--nodes {LAMB_NODES} or fewer, or --scaling weak"
            )
        one = per_worker * alone * fleet.cores
        if alone % self.nodes:
            suitable = [n for n in range(1, min(alone, fleet.nodes) + 1) if alone % n == 0]
            why = (
                "less than one is left for a node"
                if self.nodes > alone
                else f"{alone} does not divide by {self.nodes}, and the global batch size would silently change"
            )
            raise JobError(
                f"nodes is {self.nodes}: strong scaling divides the {alone} gradient accumulation steps of global batch size {one} "
                f"among the nodes; {why}. Use {join_words(suitable, 'or')} nodes, or --scaling weak (global batch size {one * self.nodes})"
            )
        batch = Batch(per_worker, alone // self.nodes, fleet.cores * self.nodes)
        documented = numbers.batch_size * numbers.accumulation * numbers.cores
        if self.batch_size is None and self.accumulation is None and batch.global_size != documented:
            notes.append(
                f"the global batch size is {batch.global_size}, not the documented {documented} that the learning rate is for: "
                f"{fleet.instance_type} has {fleet.cores} workers, not {numbers.cores}. Set --accumulation or --learning-rate"
            )
        if batch.accumulation == 1 and alone > 1:
            notes.append(
                "one accumulation step is left for a node: its graphs differ from the graphs of more steps, and are compiled again"
            )
        return batch

    def layout(self, plan: Plan) -> Mapping[str, str | int]:
        return {"phase": self.phase, "optimizer": self.optimizer}

    def launch_environment(self, plan: Plan, torch: tuple[int, ...]) -> dict[str, str]:
        env = {
            "MASTER_PORT": "2023" if self.phase == 2 else "2022",
            "NEURON_RT_STOCHASTIC_ROUNDING_EN": "1",
            "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "0",
            "XLA_TRANSFER_SEED_ASYNC": "1",
            "ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB" if torch >= (2, 5) else "BUCKET_CAP_MB": "512",
        }
        if "HF_HOME" not in self.env:
            env["HF_HUB_OFFLINE"] = "1"  # `prepare` has fetched the model
        if torch < (2, 5):
            env["XLA_DOWNCAST_BF16"] = "1"  # later the script casts the model itself
        return env

    @property
    def _source(self) -> fetching.Fetched:
        return fetching.source("samples", _TREE, self.env)

    @property
    def _data(self) -> fetching.Fetched:
        return fetching.data(self.data, f"bert-seqlen{512 if self.phase == 2 else 128}")

    def program(self, plan: Plan) -> Program:
        return self._starts(plan, "train")

    def precompile_program(self, plan: Plan) -> Program:
        return self._starts(plan, "precompile")

    def _starts(self, plan: Plan, stage: str) -> Program:
        compiles = stage == "precompile"
        steps = min(_PRECOMPILE_STEPS, self.total_steps) if compiles else self.total_steps
        output: tuple[Part, ...] = (words.JOB, "/output.precompile" if compiles else "/output")
        options = self._options(plan, (Only(self._data.place),), output, steps)
        started = words.launch(*sent.corrected(_SCRIPT, *self._corrections), *options)
        resume: words.Words = () if compiles else ("--resume_ckpt", "--resume_ckpt_path", (words.CHECKPOINT,))
        if self.phase == 2:
            started = ("python3", (words.FILES, f"/{_PHASE_2}"), *started, "--", stage, self._phase1)
            resume = ((words.CHECKPOINT,),)
        variables = {} if "HF_HOME" in self.env else {"HF_HOME": words.HUB}
        return Program(started, (*self._source.place, f"/{_FOLDER}"), resume, variables, folders=(output,))

    def prepare(self, plan: Plan) -> fetching.Steps:
        needed, data = PACKAGES.requirements(self, plan.cluster), self._data
        own_cache = "HF_HOME" in self.env
        return (
            *self._written(),
            *self._source.steps,
            *fetching.packages(self.kind, PACKAGES, needed, plan.cluster, self.image),
            *(() if own_cache else fetching.model_files(_MODEL, "config.json", "pytorch_model.bin").steps),
            *data.steps,
            *fetching.enough_files(data.place, _SHARDS, plan.workers, _TOO_FEW),
        )

    def files(self, plan: Plan) -> Mapping[str, bytes]:
        phase_2 = {_PHASE_2: sent.read(_PHASE_2)} if self.phase == 2 else {}
        return {**sent.corrections(*self._corrections), **phase_2}

    def require(self, plan: Plan) -> words.Words:
        mounts = plan.cluster.mount_dirs
        start = () if self.resume_from else words.on_cluster(self.checkpoint, mounts)
        return words.on_cluster(self.data, mounts) + start

    def _options(self, plan: Plan, data: words.Word, output: tuple[Part, ...], steps: int) -> words.Words:
        assert plan.batch is not None  # noqa: S101  created with the plan
        numbers = self._numbers
        warmup = numbers.warmup_steps if self.warmup_steps is None else self.warmup_steps
        return (
            *("--data_dir", data, "--output_dir", output, "--metrics_file", (*output, "/results.json")),
            *(("--optimizer", "LAMB") if self.optimizer == "lamb" else ()),
            *("--lr", words.number(self.learning_rate or numbers.learning_rate)),
            *(("--warmup_steps", str(warmup)) if warmup is not None else ()),
            *("--batch_size", str(plan.batch.per_worker), "--grad_accum_usteps", str(plan.batch.accumulation)),
            *("--max_steps", str(self.steps or numbers.steps), "--steps_this_run", str(steps)),
            *(("--max_pred_len", "80", "--phase2") if self.phase == 2 else ()),
        )

    @property
    def _phase1(self) -> words.Word:
        """The checkpoint that phase 2 starts from, or the folder of the job that writes it."""
        checkpoint = self.checkpoint or ""
        return words.shared(checkpoint) if checkpoint.startswith("/") else (words.TRN, f"/jobs/{checkpoint}/output")

    def _written(self) -> fetching.Steps:
        """Refuses a job whose phase 1 has written no checkpoint yet."""
        job = self.checkpoint or "/"
        if job.startswith("/") or self.resume_from:
            return ()
        says = f"job {job} has written no checkpoint yet. Wait for it (trn status --wait {job}), or name a file"
        return fetching.enough_files(self._phase1, "ckpt_*.pt", 1, "", says)


KIND = BertLarge
