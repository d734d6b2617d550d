"""GPT 6.7B pre-training with NxD Training (examples/conf/megatron_gpt_config.yaml): the model and data set of the former Megatron-LM
reference, with tensor parallelism 8 and a global batch of 1024 sequences.

Sources: the repository at the pinned commit (its configuration, training_orchestrator.py, train_setup.sh); Neuron documentation,
Megatron GPT pre-training tutorial and NxD Training installation guide; 2026-11.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from trainium_cdk.client.jobs import fetching, sent, words
from trainium_cdk.client.jobs.models import Checkpoints, Job, Upstream
from trainium_cdk.client.jobs.packages import Packages
from trainium_cdk.client.jobs.plan import Batch, Plan
from trainium_cdk.client.jobs.words import Data, Label, check_checkpoints, wrong
from trainium_cdk.description.catalog.constants import Fetches
from trainium_cdk.description.catalog.sources import sources
from trainium_cdk.errors import JobError
from trainium_cdk.runner.readers import NUMBER, Evaluation, Pattern, Reader, Step, parse_number, reads
from trainium_cdk.runner.spec import Part, Place, Program
from trainium_cdk.text import join_words

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import Fleet

_TREE = sources().repositories["nxdt"]
_VENDOR = {name: sources().repositories[name] for name in ("apex", "containers")}
_CONFIG = "megatron_gpt_config"
_SCRIPT = "training_orchestrator.py"
_CORRECTIONS: tuple[sent.Correction, ...] = ("limit_metadata", "count_all_batches")
_COMPLETES = "nxd_training.py"
"""What completes the packages after pip."""
_HAS_NEMO = ("apex", "megatron", "nemo")
_TOOLS = "NeMo needs it. Install it (python3-config is in python3-dev), or use an image that has it"
_DATA_NAME = "my-gpt2_text_document"
_TOKENIZER = "gpt2"
"""NeMo asks Hugging Face for it, also where it is given the vocabulary as files."""
_CHECKPOINTS = "exp_manager.checkpoint_callback_params"
_BAR = Pattern(
    r"(?:Epoch {1,4}(?P<epoch>\d{1,9})|Training): {0,20}\d{1,3}%\|[^|\r\n]{0,400}\|\s{0,20}(?P<at>\d{1,15})/(?P<total>\d{1,15}) \[(?P<rest>[^\[\]\r\n]{0,2000})\]"
)
_RATE = Pattern(r"(?P<rate>\d{1,15}(?:\.\d{1,9})?)(?P<unit>it/s|s/it)\b")
_SETTING = Pattern(rf"(?P<key>[\w-]{{1,60}})=(?P<value>{NUMBER})(?=[,\]\s]|$)")


@reads("loss=", "global_step=")
def read(text: str) -> Iterator[tuple[int, Step | Evaluation]]:
    """The progress bars of NxD Training, NeMo and Lightning, of its training. The step is `global_step`, from 0; without it, the batches
    of all epochs so far. The bar counts the batches of its epoch, from 0."""
    for match in _BAR.finditer(text):
        values = {m["key"]: parse_number(m["value"]) for m in _SETTING.finditer(match["rest"])}
        loss, step = values.get("reduced_train_loss", values.get("loss")), values.get("global_step")
        if loss is None and step is None:
            continue
        epoch, total = int(match["epoch"] or 0), int(match["total"])
        number = int(step) if step is not None else epoch * total + int(match["at"])
        rest = (values.get("lr"), values.get("throughput"), values.get("gradient_norm"))
        rate = _RATE.search(match["rest"])
        each = parse_number(rate["rate"]) if rate else None
        seconds = 1 / each if each and rate["unit"] == "it/s" else each
        yield match.start(), Step(number, loss, *rest, None if epoch else total, seconds=seconds)
        if "val_loss" in values:
            yield match.start(), Evaluation(number, values["val_loss"])


_CHECKPOINT_GB = 188
"""28 bytes for each of 6.7e9 parameters: bf16 is written as fp32, and fp32, that is the optimizer's two averages and its weights, as
fp64 (measured with a small model: conformance/test_nemo.py)."""
_RANDOM = (
    "a restarted training continues with its weights, optimizer, learning rate and data, but repeats the random numbers of its first steps "
    "for dropout: NxD Training does not save the generators' states"
)
PACKAGES = Packages(
    pins=("Cython", "packaging", "psutil", "pybind11", "setuptools>=70,<81", "torchvision", "wheel"),
    libraries=("neuronx_distributed", "neuronx_distributed_training"),
    pythons=("3.10", "3.11", "3.12"),
    megabytes=1200,
    also="NeMo 2.1.0, Apex 25.07 and what the vendor's training image has with them",
)
"""What the vendor's nxdt_requirements.txt needs before it is installed (`shell/nxd_training.sh`), and psutil, which NeMo imports and the
vendor's image has; setuptools 81 has no pkg_resources. Pythons: those that numpy and PyYAML have wheels for, at its versions."""


class Gpt(Job):
    """GPT 6.7B pre-training: 32 layers, hidden 4096, 32 heads, 2048 tokens."""

    TITLE: ClassVar[str] = "GPT 6.7B pre-training with NxD Training"
    FAMILIES: ClassVar[tuple[str, ...]] = ("trn1", "trn1n")
    RELEASES: ClassVar[tuple[str, str]] = ("2.28.0", "2.29.0")
    UPSTREAM: ClassVar[Upstream | None] = Upstream(
        "aws-neuron/neuronx-distributed-training", _TREE.commit, f"examples/conf/{_CONFIG}.yaml", "legacy: PyTorch/XLA"
    )
    REPLACES: ClassVar[Mapping[str, str]] = {
        "gpt3-6.7b": "the Neuron reference for Megatron-LM is unsupported since SDK 2.13 and uses functions that PyTorch, NumPy and "
        "torch-xla have removed since, so it runs on no release in the catalog"
    }
    PACKAGES: ClassVar[Packages | None] = PACKAGES
    FETCHES: ClassVar[Fetches] = "builds"
    LOGS: ClassVar[tuple[Reader, ...]] = (read,)
    CHECKPOINTS: ClassVar[Checkpoints | None] = Checkpoints(
        "output/checkpoints", pattern="*.ckpt", last="done", forget="others"
    )

    kind: Literal["gpt-6.7b"] = "gpt-6.7b"
    tensor_parallel: int = Field(default=8, ge=1, le=32, description="NeuronCores of one copy of the model.")
    global_batch_size: int = Field(default=1024, ge=1, description="Sequences of one optimizer step.")
    micro_batch_size: int = Field(default=1, ge=1, description="Sequences of one microstep.")
    steps: int = Field(default=20_000, ge=1, description="Optimizer steps.")
    learning_rate: float = Field(default=0.00015, gt=0, lt=1, description="Peak learning rate.")
    checkpoint_interval: int = Field(default=200, ge=1, description="Steps between two checkpoints.")
    data: Data | None = Field(
        default=None,
        description="A directory or s3:// prefix with gpt2-vocab.json, gpt2-merges.txt and <data-name>.bin/.idx. Default: Wikipedia.",
    )
    data_name: Label = Field(default=_DATA_NAME, description="File name of the .bin and .idx files, without ending.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_checkpoints(self.steps, self.checkpoint_interval)
        if self.data is None and self.data_name != _DATA_NAME:
            raise wrong(
                f"data_name is {self.data_name}, but data is not given, and Wikipedia's files are {_DATA_NAME}. Give data, or remove data_name"
            )
        return self

    def batch(self, fleet: "Fleet", notes: list[str]) -> Batch:
        suitable = [t for t in (1, 2, 4, 8, 16, 32) if fleet.cores % t == 0]
        if self.tensor_parallel not in suitable:
            raise JobError(
                f"tensor_parallel is {self.tensor_parallel}; it must divide the model's 32 heads and the {fleet.cores} NeuronCores of "
                f"{fleet.instance_type}. Use --tensor-parallel {join_words(suitable, 'or')}"
            )
        each = self.micro_batch_size * fleet.cores // self.tensor_parallel
        if self.global_batch_size % (each * self.nodes):
            counts = [n for n in range(1, fleet.nodes + 1) if self.global_batch_size % (each * n) == 0]
            use = f"Use {join_words(counts, 'or')} nodes, or another" if counts else "Use another"
            raise JobError(
                f"nodes is {self.nodes}: global batch size {self.global_batch_size} does not divide by {each * self.nodes} "
                f"({self.micro_batch_size} sequences x {each * self.nodes // self.micro_batch_size} data-parallel). {use} "
                "--global-batch-size"
            )
        notes += [f"each checkpoint has about {_CHECKPOINT_GB} GB; the newest is kept", _RANDOM]
        copies = each * self.nodes // self.micro_batch_size
        return Batch(self.micro_batch_size, self.global_batch_size // (each * self.nodes), copies)

    def check(self, plan: Plan) -> None:
        if self.data and self.data.startswith("/") and not re.fullmatch(r"[\w/.+-]+", self.data):
            raise JobError(
                f"data is {self.data!r}: NxD Training's command line takes letters, digits and / . _ + - in paths. Use another directory"
            )

    def launch_environment(self, plan: Plan, torch: tuple[int, ...]) -> dict[str, str]:
        env = {"HYDRA_FULL_ERROR": "1", "MALLOC_ARENA_MAX": "128", "XLA_DISABLE_FUNCTIONALIZATION": "0"}
        return env if "HF_HOME" in self.env else {**env, "HF_HUB_OFFLINE": "1"}  # `prepare` has fetched the tokenizer

    @property
    def _source(self) -> fetching.Fetched:
        return fetching.source("nxdt", _TREE, self.env)

    @property
    def _data(self) -> fetching.Fetched:
        return fetching.data(self.data, "gpt2-wikipedia")

    def program(self, plan: Plan) -> Program:
        return self._starts("/output")

    def precompile_program(self, plan: Plan) -> Program:
        return self._starts("/output.precompile", compiles=True)

    def _starts(self, folder: str, *, compiles: bool = False) -> Program:
        # while compiling, it stops after ten steps and writes no checkpoint; it would start from one that is in its folder
        output: tuple[Part, ...] = (words.JOB, folder)
        started = words.launch(*sent.corrected(_SCRIPT, *_CORRECTIONS), *self._options(self._data.place, output))
        variables: dict[str, words.Word] = {"COMPILE": "1" if compiles else "0"}
        if "HF_HOME" not in self.env:
            variables["HF_HOME"] = words.HUB
        return Program(started, (*self._source.place, "/examples"), variables=variables, folders=(output,))

    def prepare(self, plan: Plan) -> fetching.Steps:
        own_cache = "HF_HOME" in self.env
        return (
            *self._packages(plan),
            *self._source.steps,
            *(() if own_cache else fetching.model_files(_TOKENIZER, "*.json", "merges.txt").steps),
            *self._data.steps,
        )

    def files(self, plan: Plan) -> Mapping[str, bytes]:
        return {**sent.corrections(*_CORRECTIONS), _COMPLETES: sent.read(_COMPLETES)}

    def require(self, plan: Plan) -> words.Words:
        return words.on_cluster(self.data, plan.cluster.mount_dirs)

    def _options(self, data: tuple[Part, ...], output: tuple[Part, ...]) -> words.Words:
        return (
            *("--config-path=conf", f"--config-name={_CONFIG}"),
            *(("trainer.devices=", Place("processes")), ("trainer.num_nodes=", Place("nodes"))),
            *(f"trainer.max_steps={self.steps}", ("exp_manager.explicit_log_dir=", *output)),
            f"{_CHECKPOINTS}.every_n_train_steps={min(self.checkpoint_interval, self.steps)}",
            f"{_CHECKPOINTS}.use_master_weights_in_ckpt=True",
            f"distributed_strategy.tensor_model_parallel_size={self.tensor_parallel}",
            f"data.micro_batch_size={self.micro_batch_size}",
            f"data.global_batch_size={self.global_batch_size}",
            ("data.data_prefix=[1.0,", *data, f"/{self.data_name}]"),
            ("data.tokenizer.vocab_file=", *data, "/gpt2-vocab.json"),
            ("data.tokenizer.merge_file=", *data, "/gpt2-merges.txt"),
            f"model.optim.lr={words.number(self.learning_rate)}",
            ("compiler_cache_url=", words.CACHE),
        )

    def _packages(self, plan: Plan) -> fetching.Steps:
        """NeMo, Apex and Megatron's core by the vendor's own requirements; where the environment has them, only NeMo's helper is compiled."""
        containers, apex = (
            fetching.source(name, _VENDOR[name], self.env, unless=_HAS_NEMO) for name in ("containers", "apex")
        )
        needed = PACKAGES.requirements(self, plan.cluster)
        places = (containers.place, apex.place)
        return (
            *fetching.tools(("g++", "make", "python3-config"), _TOOLS),
            *containers.steps,
            *apex.steps,
            *fetching.packages(self.kind, PACKAGES, needed, plan.cluster, self.image, program=_COMPLETES, words=places),
        )

    def layout(self, plan: Plan) -> Mapping[str, str | int]:
        # ZeRO-1: each worker has a part of the optimizer's state
        return {"tensor_parallel": self.tensor_parallel, "workers": plan.workers}


KIND = Gpt
