"""Llama 3.1 8B pre-training with NeuronX Distributed on Trn1: tensor parallelism 32 and ZeRO-1, 8192 tokens.

Sources: neuronx-distributed v2.28.0, examples/training/llama/tp_zero1_llama_hf_pretrain (its script and tp_zero1_llama3_8B_hf_pretrain.sh);
Neuron documentation, training performance on trn1; 2026-11.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trainium_cdk.catalog.sources import sources
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import corrections, quote, templates
from trainium_cdk.jobs.kinds.bert_large import read
from trainium_cdk.jobs.models import Checkpoints, Job, Upstream, check_checkpoints, check_run_steps, check_warm_up
from trainium_cdk.jobs.packages import Packages
from trainium_cdk.jobs.plan import Batch, Plan, or_list
from trainium_cdk.jobs.records import Reader
from trainium_cdk.jobs.templates import Option, Template
from trainium_cdk.jobs.texts import AbsolutePath

if TYPE_CHECKING:
    from trainium_cdk.catalog import ThroughputPoint
    from trainium_cdk.outputs import Fleet

PACKAGES = Packages(
    pins=(
        "datasets==3.6.0",
        "huggingface-hub==0.34.4",
        "regex==2025.9.1",
        "tensorboard==2.21.0",
        "transformers==4.48.0",
    ),
    libraries=("neuronx_distributed",),
    megabytes=390,
)
"""What the script imports, within the vendor's requirements.txt; TensorBoard as for BERT-Large."""

_TREE = sources().repositories["nxd"]
_FOLDER = "examples/training/llama/tp_zero1_llama_hf_pretrain"
_SCRIPT = "tp_zero1_llama_hf_pretrain.py"
_TENSOR_PARALLEL = 32
_PRECOMPILE_STEPS = 2
_CHECKPOINT_GB = 225
"""28 bytes for each of 8.03e9 parameters: with XLA_DOWNCAST_BF16, bf16 is written as fp32, and fp32, that is the optimizer's two averages
and its weights, as fp64 (measured with a small model: conformance/test_nxd.py)."""
_KEPT = 2
_CORRECTIONS: tuple[corrections.Correction, ...] = ("limit_metadata", "keep_data_position", "keep_master_weights")


class LlamaNxd(Job):
    """Llama 3.1 8B pre-training with NeuronX Distributed."""

    TITLE: ClassVar[str] = "Llama 3.1 8B pre-training with NeuronX Distributed"
    FAMILIES: ClassVar[tuple[str, ...]] = ("trn1", "trn1n")
    RELEASES: ClassVar[tuple[str, str]] = ("2.28.0", "2.29.0")
    UPSTREAM: ClassVar[Upstream | None] = Upstream(
        "aws-neuron/neuronx-distributed", _TREE.commit, f"{_FOLDER}/{_SCRIPT}", "legacy: PyTorch/XLA"
    )
    PACKAGES: ClassVar[Packages | None] = PACKAGES
    CHECKPOINTS: ClassVar[Checkpoints | None] = Checkpoints("checkpoints", "newest_nxd_checkpoint")
    LOGS: ClassVar[tuple[Reader, ...]] = (read,)

    kind: Literal["llama3.1-8b"] = "llama3.1-8b"
    data: AbsolutePath | None = Field(
        default=None,
        description="Directory on the cluster with the tokenized data set that get_dataset.py of the same repository writes; the "
        "tokenizer is gated, so no public data set exists. Required.",
    )
    global_batch_size: int = Field(default=1024, ge=1, description="Sequences of one optimizer step.")
    steps: int = Field(default=10_000, ge=1, description="Optimizer steps of the whole training.")
    run_steps: int | None = Field(default=None, ge=1, description="Stop after this many steps. Default: all.")
    learning_rate: float = Field(default=1.5e-4, gt=0, lt=1, description="Peak learning rate.")
    warmup_steps: int = Field(default=100, ge=0, description="Warm-up steps.")
    checkpoint_interval: int = Field(default=500, ge=1, description="Steps between two checkpoints.")

    @model_validator(mode="after")
    def _schedule(self) -> Self:
        check_run_steps(self.run_steps, self.steps)
        check_checkpoints(self.run_steps or self.steps, self.checkpoint_interval)
        if "warmup_steps" in self.model_fields_set:  # a short trial run may leave the default
            check_warm_up(self.warmup_steps, self.steps)
        return self

    def batch(self, fleet: "Fleet", notes: list[str]) -> Batch:
        if fleet.cores % _TENSOR_PARALLEL:
            raise JobError(
                f"{self.kind} spreads the model over {_TENSOR_PARALLEL} NeuronCores, but {fleet.instance_type} has {fleet.cores}. Use a "
                "queue of trn1.32xlarge"
            )
        notes.append(f"each checkpoint has about {_CHECKPOINT_GB} GB; the newest {_KEPT} are kept")
        copies = fleet.cores * self.nodes // _TENSOR_PARALLEL
        if self.global_batch_size % copies:
            counts = [
                n
                for n in range(1, fleet.nodes + 1)
                if self.global_batch_size % (fleet.cores * n // _TENSOR_PARALLEL) == 0
            ]
            raise JobError(
                f"nodes is {self.nodes}: global batch size {self.global_batch_size} does not divide by {copies} data-parallel copies. "
                f"Use {or_list(counts)} nodes, or another --global-batch-size"
            )
        return Batch(1, self.global_batch_size // copies, copies)

    def check(self, plan: Plan) -> None:
        if self.data is None:
            raise JobError(
                "data is not given: the tokenizer of Llama 3.1 is gated, so there is no public tokenized data set. Write one with "
                "get_dataset.py of aws-neuron/neuronx-distributed (examples/training/llama), and name its directory as --data"
            )

    def launch_environment(self, plan: Plan, torch: tuple[int, ...]) -> dict[str, str]:
        cores = str(plan.fleet.cores)
        return {
            "MALLOC_ARENA_MAX": "64",  # otherwise the host runs out of memory
            "NEURON_CC_FLAGS": "--model-type transformer",
            "NEURON_FUSE_SOFTMAX": "1",
            "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "3",
            "NEURON_RT_NUM_CORES": cores,
            "TPU_CHIPS_PER_HOST_BOUNDS": cores,
            "TPU_NUM_DEVICES": cores,
        }

    def template(self, plan: Plan) -> Template:
        assert plan.batch is not None  # noqa: S101  created with the plan
        steps = self.run_steps or self.steps
        interval = min(self.checkpoint_interval, steps)
        options: list[Option] = [
            ("--output_dir", '"$output"'),
            ("--metrics_file", '"$output/results.json"'),
            ("--model_path", '"$PWD/8B_config_llama3.1"'),
            ("--data_dir", quote.shared(self.data or "")),
            f"--tensor_parallel_size {_TENSOR_PARALLEL} --context_parallel_size 1",
            f"--batch_size {plan.batch.per_worker} --grad_accum_usteps {plan.batch.accumulation}",
            f'--steps_this_run "$steps" --max_steps {self.steps} --warmup_steps {self.warmup_steps}',
            f"--lr {templates.number(self.learning_rate)} --seq_len 8192",
            "--sequence_parallel_enabled --selective_checkpoint_enabled --logging_interval 1",
            "--qkv_linear --kv_replicator 4 --use_flash_attention 1 --use_gpu_compatible_precision 1 --num_layers 32",
            "--use_mix_precision --use_zero_1",
            '"${checkpoints[@]}"',
        ]
        node = f"""{templates.tree_ref("nxd", _TREE)}
cd "$trn/src/nxd-$nxd_ref/{_FOLDER}"
export PYTHONPATH="$PWD/..${{PYTHONPATH:+:$PYTHONPATH}}"
steps={steps}
output=$job/output
checkpoints=(--checkpoint_dir "$job/checkpoints" --checkpoint_freq {interval} --num_kept_checkpoint {_KEPT}
  --loading_step latest_if_exists)
if [ "$stage" = precompile ]; then
  steps={min(_PRECOMPILE_STEPS, steps)}
  output=$job/output.precompile
  checkpoints=()
fi
mkdir -p "$output"
{templates.command(corrections.program(_SCRIPT, *_CORRECTIONS), options)}
{templates.RUN}"""
        prepare = f"""{PACKAGES.lines(self, plan.cluster)}
{templates.tree_ref("nxd", _TREE)}
source_tree nxd {_TREE.url} "$nxd_ref"
"""
        return Template(node, prepare, require=templates.on_cluster(self.data or "", plan))

    @property
    def files(self) -> Mapping[str, bytes]:
        return corrections.sent(*_CORRECTIONS)

    def layout(self, plan: Plan) -> Mapping[str, str | int]:
        return {"workers": plan.workers}  # ZeRO-1: each has a part of the optimizer's state

    def published(self, point: "ThroughputPoint") -> bool:
        return (point.tensor_parallel, point.precision) == (_TENSOR_PARALLEL, "bf16+fp32")


KIND = LlamaNxd
