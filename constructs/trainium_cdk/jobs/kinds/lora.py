"""LoRA fine-tuning with Optimum Neuron on Trn1: its examples for Qwen3 8B and Llama 3.1 8B.

Sources: huggingface/optimum-neuron v0.4.5 (2026-02-11), the newest release: examples/training/{qwen3,llama} and pyproject.toml. Every
release of it pins one Neuron SDK; this one pins 2.26.1 (torch-neuronx 2.8.0.2.10.16998, neuronx_distributed 0.15.22404).
"""

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field

from trainium_cdk.catalog.constants import Fetches
from trainium_cdk.catalog.sources import sources
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import hub, quote, templates
from trainium_cdk.jobs.models import Checkpoints, Job, Upstream
from trainium_cdk.jobs.packages import Packages
from trainium_cdk.jobs.plan import Batch, Plan
from trainium_cdk.jobs.templates import Option, Template
from trainium_cdk.jobs.texts import AbsolutePath

if TYPE_CHECKING:
    from trainium_cdk.outputs import Fleet

PACKAGES = Packages(
    pins=("datasets==3.6.0", "optimum-neuron[training]==0.4.5", "pyarrow==23.0.1", "tensorboard==2.21.0"),
    libraries=("neuronx_distributed",),
    pythons=("3.10", "3.11"),
    megabytes=450,
)
"""What the scripts import, beside PyTorch; `training` pins trl 0.24.0, peft 0.17.0 and accelerate 1.8.1. Pythons: pyproject.toml.
pyarrow 26 does not import beside NumPy 1.26, the newest that neuronx-cc takes (run 2026-11-24); its wheel does not say so."""

_TREE = sources().repositories["optimum-neuron"]
_TENSOR_PARALLEL = {"trn1": 8, "trn1n": 8, "trn2": 4}
"""NeuronCores of one copy of the model, by instance family, as in the examples' launch scripts (finetune_llama.sh)."""
_PRECOMPILE_STEPS = 5


class Example(NamedTuple):
    """What an example's launch script passes to its program.

    Attributes:
        folder: below examples/training.
        options: in addition to those of all examples.
    """

    folder: str
    program: str
    model: str
    dataset: str
    accumulation: int
    learning_rate: float
    options: tuple[str, ...]


EXAMPLES = {
    "qwen3-8b": Example(
        "qwen3", "finetune_qwen3.py", "Qwen/Qwen3-8B", "tengomucho/simple_recipes", 8, 8e-4,
        ("--lr_scheduler_type cosine",),
    ),
    "llama3.1-8b": Example(
        "llama", "finetune_llama.py", "meta-llama/Llama-3.1-8B", "databricks/databricks-dolly-15k", 16, 1e-4,
        ("--warmup_steps 5",),
    ),
}  # fmt: skip


class Lora(Job):
    """LoRA fine-tuning of an 8B model: tensor parallelism 8 (Trn1) or 4 (Trn2) and ZeRO-1, rank 64."""

    TITLE: ClassVar[str] = "LoRA fine-tuning of Qwen3 8B or Llama 3.1 8B with Optimum Neuron"
    FAMILIES: ClassVar[tuple[str, ...]] = tuple(_TENSOR_PARALLEL)
    RELEASES: ClassVar[tuple[str, str]] = ("2.26.1", "2.27.0")
    UPSTREAM: ClassVar[Upstream | None] = Upstream(
        "huggingface/optimum-neuron", _TREE.commit, "examples/training/{qwen3,llama}", "v0.4.5, which pins SDK 2.26.1"
    )
    PACKAGES: ClassVar[Packages | None] = PACKAGES
    FETCHES: ClassVar[Fetches] = "models"
    RESTARTS: ClassVar[bool] = False
    CHECKPOINTS: ClassVar[Checkpoints | None] = Checkpoints(
        "output",
        refuses="Optimum Neuron's trainer refuses resume_from_checkpoint, so that each fine-tuning starts from the beginning",
    )

    kind: Literal["lora"] = "lora"
    model: Literal["qwen3-8b", "llama3.1-8b"] = Field(default="qwen3-8b", description="Model to fine-tune.")
    weights: AbsolutePath | None = Field(
        default=None,
        description="Directory on the cluster with the model's files. Default: from Hugging Face; Llama is gated: --env HF_TOKEN.",
    )
    epochs: int = Field(default=3, ge=1, description="Passes over the data set.")
    run_steps: int | None = Field(
        default=None,
        ge=1,
        description="Train this many steps, whatever epochs says. Default: as many as the epochs have.",
    )
    learning_rate: float | None = Field(
        default=None, gt=0, lt=1, description="Peak learning rate. Default: qwen3-8b 8e-4, llama3.1-8b 1e-4."
    )
    accumulation: int | None = Field(
        default=None, ge=1, description="Gradient accumulation microsteps. Default: qwen3-8b 8, llama3.1-8b 16."
    )

    @property
    def _example(self) -> Example:
        return EXAMPLES[self.model]

    def batch(self, fleet: "Fleet", notes: list[str]) -> Batch:
        each = _TENSOR_PARALLEL[fleet.family]
        if fleet.cores % each:
            raise JobError(
                f"{self.kind} spreads the model over {each} NeuronCores, but {fleet.instance_type} has {fleet.cores}. Use a "
                "queue of trn1.32xlarge or trn2.48xlarge"
            )
        notes.append(
            "an interrupted fine-tuning starts from the beginning: the example does not resume from its checkpoints"
        )
        notes.append(
            f"each checkpoint holds the adapters in {each} shards: `optimum-cli neuron consolidate` makes one file of them, which "
            "peft can merge into the model"
        )
        copies = fleet.cores * self.nodes // each
        return Batch(1, self.accumulation or self._example.accumulation, copies)

    def check(self, plan: Plan) -> None:
        hub.check_home(self)
        if self.weights is None:
            hub.check_gated(self, self._example.model, "--weights")

    def launch_environment(self, plan: Plan, torch: tuple[int, ...]) -> dict[str, str]:
        return {
            "HF_DATASETS_OFFLINE": "1",  # `prepare` has fetched data set and model
            "HF_HUB_OFFLINE": "1",
            "MALLOC_ARENA_MAX": "64",  # otherwise the host runs out of memory
            "NEURON_CC_FLAGS": "--model-type transformer --retry_failed_compilation",
            "NEURON_FUSE_SOFTMAX": "1",
            "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "3",
        }

    def template(self, plan: Plan) -> Template:
        assert plan.batch is not None  # noqa: S101  created with the plan
        example = self._example
        model = quote.shared(self.weights) if self.weights else example.model
        options: list[Option] = [
            ("--model_id", model),
            ("--output_dir", '"$output"'),
            f'--do_train --num_train_epochs {self.epochs} --max_steps "$steps"',
            f"--per_device_train_batch_size 1 --gradient_accumulation_steps {plan.batch.accumulation}",
            f"--learning_rate {templates.number(self.learning_rate or example.learning_rate)} --bf16",
            f"--tensor_parallel_size {_TENSOR_PARALLEL[plan.fleet.family]} --zero_1 --async_save --overwrite_output_dir",
            "--skip_cache_push",  # its program ends with a request to the hub, which fails where the hub is offline
            '--logging_steps 1 --report_to tensorboard --logging_dir "$output"',
            *example.options,
        ]
        node = f"""{templates.tree_ref("optimum_neuron", _TREE)}
cd "$trn/src/optimum-neuron-$optimum_neuron_ref/examples/training/{example.folder}"
export HF_HOME=$trn/hf_cache
steps={self.run_steps or -1}
output=$job/output
if [ "$stage" = precompile ]; then
  steps={min(_PRECOMPILE_STEPS, self.run_steps or _PRECOMPILE_STEPS)}
  output=$job/output.precompile
fi
mkdir -p "$output"
{templates.command(example.program, options)}
{templates.RUN}"""
        fetch = "" if self.weights else hub.fetch(example.model, weights=True) + "\n"
        prepare = f"""{PACKAGES.lines(self, plan.cluster)}
{templates.tree_ref("optimum_neuron", _TREE)}
source_tree optimum-neuron {_TREE.url} "$optimum_neuron_ref"
{fetch}hugging_face_data {example.dataset}"""
        return Template(node, prepare, require=templates.on_cluster(self.weights or "", plan))


KIND = Lora
