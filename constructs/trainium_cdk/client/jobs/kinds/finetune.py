"""Supervised fine-tuning with Hugging Face's libraries on TorchNeuron (Trn2 and Trn3, Neuron SDK 2.33): LoRA, or all weights.

The program is TRL's own (`trl.scripts.sft`), on Transformers, PEFT and Accelerate, which know the device `neuron`; FSDP2 shards the
model over all NeuronCores. Sources: Neuron documentation, "Train models on Neuron" (2026-09-01); TRL 1.16.0, Transformers 5.23.0,
PEFT 0.21.2 and Accelerate 1.15.0 from PyPI, whose options these are.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trainium_cdk.client.jobs import fetching, words
from trainium_cdk.client.jobs.models import Checkpoints, Job, Upstream
from trainium_cdk.client.jobs.packages import Packages
from trainium_cdk.client.jobs.plan import Batch, Plan
from trainium_cdk.client.jobs.words import AbsolutePath, Data, Override, wrong
from trainium_cdk.description.catalog.constants import Fetches
from trainium_cdk.errors import JobError
from trainium_cdk.runner.spec import Program, Word, Words

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import Fleet

PACKAGES = Packages(
    pins=(
        "accelerate==1.15.0",
        "datasets==4.7.0",
        "huggingface-hub==1.33.0",
        "peft==0.21.2",
        "tensorboard==2.21.0",
        "transformers==5.23.0",
        "trl==1.16.0",
    ),
    pythons=("3.11", "3.12", "3.13", "3.14"),
    megabytes=420,
)
FSDP = {"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "activation_checkpointing": True}
"""Transformers' fsdp_config: each layer of the model is a shard; its activations are computed again in the backward pass."""
_LEARNING_RATE = {"lora": 2e-4, "full": 2e-5}
"""As in the examples of TRL's program."""


class Finetune(Job):
    """Supervised fine-tuning of a causal language model of Hugging Face, sharded with FSDP2."""

    TITLE: ClassVar[str] = (
        "supervised fine-tuning (LoRA or full) of a model of Hugging Face with Transformers, PEFT and TRL"
    )
    FRAMEWORKS: ClassVar[tuple[str, ...]] = ("torch-native",)
    FAMILIES: ClassVar[tuple[str, ...]] = ("trn2", "trn2u", "trn3")
    RELEASES: ClassVar[tuple[str, str]] = ("2.33.0", "")
    UPSTREAM: ClassVar[Upstream | None] = Upstream("", "", "trl.scripts.sft", "TRL 1.16.0 of PyPI")
    REPLACES: ClassVar[Mapping[str, str]] = {
        "lora": "Optimum Neuron needs Neuron SDK 2.26.1, whose PyTorch AWS no longer supports. LoRA is the default of another kind"
    }
    PACKAGES: ClassVar[Packages | None] = PACKAGES
    FETCHES: ClassVar[Fetches] = "models"
    CHECKPOINTS: ClassVar[Checkpoints | None] = Checkpoints("output", pattern="checkpoint-*", last="trainer_state.json")

    kind: Literal["finetune"] = "finetune"
    model: fetching.HubModel = Field(
        default="Qwen/Qwen3-8B", description="Model on Hugging Face. Llama is gated: --env HF_TOKEN."
    )
    weights: AbsolutePath | None = Field(
        default=None, description="Directory on the cluster with the model's files, which are not fetched then."
    )
    dataset: fetching.HubDataset | None = Field(
        default=None,
        description="Data set on Hugging Face: OWNER/NAME, or OWNER/NAME CONFIGURATION. Default, without data: trl-lib/Capybara.",
    )
    data: Data | None = Field(
        default=None,
        description="Directory on the cluster, or s3://, with JSON lines of `messages`, or of `prompt` and `completion`, or of `text`.",
    )
    method: Literal["lora", "full"] = Field(default="lora", description="Train adapters, or all weights.")
    lora_rank: int = Field(default=32, ge=1, le=1024, description="Rank of the adapters of all linear layers.")
    lora_alpha: int | None = Field(default=None, ge=1, description="Scale of the adapters. Default: half their rank.")
    epochs: int = Field(default=1, ge=1, description="Passes over the data set.")
    run_steps: int | None = Field(
        default=None,
        ge=1,
        description="Train this many steps, whatever epochs says. Default: as many as the epochs have.",
    )
    max_length: int = Field(default=2048, ge=8, description="Tokens of a sequence; longer ones are cut.")
    batch_size: int = Field(default=1, ge=1, description="Sequences of one microstep of one NeuronCore.")
    accumulation: int = Field(default=8, ge=1, description="Gradient accumulation microsteps.")
    learning_rate: float | None = Field(
        default=None, gt=0, lt=1, description="Peak learning rate. Default: lora 2e-4, full 2e-5."
    )
    checkpoint_interval: int = Field(default=100, ge=1, description="Steps between two checkpoints.")
    override: tuple[Override, ...] = Field(
        default=(),
        description="Further option of TRL's sft, as KEY=VALUE or KEY, for example packing. Repeat it for more.",
    )
    precompile: bool = Field(default=False, description="Not supported: TorchNeuron compiles while it runs.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.data and self.dataset:
            raise wrong(f"data is {self.data} and dataset is {self.dataset}: give one of them")
        given = {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}
        for option, value in given.items():
            if self.method == "full" and value is not None and option in self.model_fields_set:
                raise wrong(
                    f"{option} is {value}, but method is full, which trains no adapters. Remove it, or choose method lora"
                )
        return self

    def batch(self, fleet: "Fleet", notes: list[str]) -> Batch:
        return Batch(self.batch_size, self.accumulation, fleet.cores * self.nodes)

    def check(self, plan: Plan) -> None:
        fetching.check_hub_home(self)
        if self.precompile:
            raise JobError(
                "finetune cannot precompile: TorchNeuron compiles while it runs. Submit it without --precompile"
            )
        if self.weights is None:
            fetching.check_gated(self, self.model, "--weights")

    def layout(self, plan: Plan) -> Mapping[str, str | int]:
        rank = {"lora_rank": self.lora_rank} if self.method == "lora" else {}
        return {"model": self.model, "method": self.method, **rank}

    def launch_environment(self, plan: Plan, torch: tuple[int, ...]) -> dict[str, str]:
        return {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}  # `prepare` has fetched all

    @property
    def _dataset(self) -> tuple[Word, str]:
        """Return the place of the data set, or its name on the Hub; and its configuration."""
        if self.data:
            return fetching.data(self.data, "").place, ""
        name, _, configuration = (self.dataset or "trl-lib/Capybara").partition(" ")
        return name, configuration

    def program(self, plan: Plan) -> Program:
        model: Word = words.shared(self.weights) if self.weights else self.model
        output: Word = (words.JOB, "/output")
        return Program(
            words.launch("-m", "trl.scripts.sft", *self._options(model, *self._dataset, output)),
            (words.JOB, "/work"),
            resume=("--resume_from_checkpoint", (words.CHECKPOINT,)),
            variables={"HF_HOME": words.HUB, "TENSORBOARD_LOGGING_DIR": output},
            folders=(output,),
        )

    def prepare(self, plan: Plan) -> fetching.Steps:
        needed = PACKAGES.requirements(self, plan.cluster)
        return (
            *fetching.packages(self.kind, PACKAGES, needed, plan.cluster, self.image),
            *(() if self.weights else fetching.model(self.model, weights=True).steps),
            *(fetching.data(self.data, "").steps if self.data else ()),
            *fetching.dataset(*self._dataset),
        )

    def files(self, plan: Plan) -> Mapping[str, bytes]:
        return {"fsdp.json": (json.dumps(FSDP, indent=2) + "\n").encode()}

    def require(self, plan: Plan) -> Words:
        mounts = plan.cluster.mount_dirs
        return words.on_cluster(self.weights, mounts) + words.on_cluster(self.data, mounts)

    def _options(self, model: Word, dataset: Word, configuration: str, output: Word) -> Words:
        rate = words.number(self.learning_rate or _LEARNING_RATE[self.method])
        alpha = str(self.lora_alpha or (self.lora_rank + 1) // 2)
        adapters = ("--use_peft", "--lora_target_modules", "all-linear", "--lora_r", str(self.lora_rank))
        return (
            *("--model_name_or_path", model, "--dataset_name", dataset),
            *(("--dataset_config", configuration) if configuration else ()),
            *("--output_dir", output, "--num_train_epochs", str(self.epochs), "--max_steps", str(self.run_steps or -1)),
            *("--max_length", str(self.max_length), "--per_device_train_batch_size", str(self.batch_size)),
            *("--gradient_accumulation_steps", str(self.accumulation), "--learning_rate", rate),
            *("--dtype", "bfloat16", "--bf16", "true", "--fsdp", "--fsdp_config", (words.FILES, "/fsdp.json")),
            *("--gradient_checkpointing", "false", "--save_strategy", "steps"),
            *("--save_steps", str(self.checkpoint_interval), "--save_total_limit", "2", "--logging_steps", "1"),
            *("--disable_tqdm", "true", "--report_to", "tensorboard"),
            *("--logging_nan_inf_filter", "false"),  # its default prints a NaN loss as 0
            *((*adapters, "--lora_alpha", alpha) if self.method == "lora" else ()),
            *words.options(self.override),
        )


KIND = Finetune
