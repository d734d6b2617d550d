"""Training with TorchTitan on TorchNeuron (Trn2 and Trn3, Neuron SDK 2.33): any configuration, and presets for common models.

Sources: Neuron documentation, TorchTitan Neuron (set-up of 2026-10-18, basic training tutorial of 2026-10-15, release notes of
2026-10-19); options of pytorch/torchtitan, which the vendor's repository extends. No commit of that is pinned here: the job must give one.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from trainium_cdk.client.jobs import fetching, words
from trainium_cdk.client.jobs.models import Checkpoints, Job, Upstream, plain
from trainium_cdk.client.jobs.packages import Packages
from trainium_cdk.client.jobs.plan import Plan
from trainium_cdk.client.jobs.words import AbsolutePath, Data, Label, Override, shown, wrong
from trainium_cdk.description.catalog.constants import Fetches
from trainium_cdk.description.catalog.sources import SourceTree
from trainium_cdk.errors import JobError
from trainium_cdk.runner.readers import NUMBER, Pattern, Reader, Step, parse_number, reads
from trainium_cdk.runner.readers.step_lines import validates
from trainium_cdk.runner.spec import Program
from trainium_cdk.text import Text

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import Fleet

_REPOSITORY = "aws-neuron/torchtitan-neuron"
_URL = f"https://github.com/{_REPOSITORY}.git"
_DEFAULT = "qwen3-8b"
_OWN = "torchtitan_neuron."
"""Modules whose configurations AWS has written for Trainium."""
_PACKAGES = Packages(pins=("huggingface-hub",), also="TorchTitan's commit and its requirements.txt")
_ONE_LOG = ("--local-ranks-filter", "0", "--role", "rank", "--tee", "3")
"""Options of the launcher, as TorchTitan's run_train.sh sets them: every worker logs every step, and the log shows one worker per node."""
_LINE = Pattern(r"\bstep:\s{0,20}(?P<step>\d{1,15})\s{1,4}(?P<rest>loss:[^\r\n]{1,400})")
_PAIR = Pattern(rf"(?P<key>\w{{2,20}}):\s{{0,20}}(?P<value>{NUMBER}|\d{{1,3}}(?:,\d{{3}}){{1,5}})(?=[\s%G]|$)")


@reads("step:")
def read(text: str) -> Iterator[tuple[int, Step]]:
    """TorchTitan's lines, without their colours. All have the memory in use. Those of a validation are not training steps."""
    for match in _LINE.finditer(text):
        if "memory:" not in match["rest"] or validates(text[: match.start()]):
            continue
        values = {m["key"]: parse_number(m["value"].replace(",", "")) for m in _PAIR.finditer(match["rest"])}
        step = Step(
            int(match["step"]),
            values.get("loss"),
            grad_norm=values.get("grad_norm"),
            tokens_per_second=values.get("tps", values.get("wps")),
        )
        yield match.start(), step


PythonName = Annotated[
    str,
    Text(
        r"^[A-Za-z_][A-Za-z0-9_.]{0,199}$",
        "a name of Python: letters, digits, _ and dots, with a letter or _ as the first",
        "torchtitan_neuron.models.qwen3",
    ),
]


class TorchTitan(Job):
    """A configuration of TorchTitan: one of a preset, or any that its repository has."""

    TITLE: ClassVar[str] = (
        "pre-training or fine-tuning with TorchTitan: Qwen3, Llama, DeepSeek, GPT-OSS, or any configuration"
    )
    FRAMEWORKS: ClassVar[tuple[str, ...]] = ("torch-native",)
    FAMILIES: ClassVar[tuple[str, ...]] = ("trn2", "trn2u", "trn3")
    RELEASES: ClassVar[tuple[str, str]] = ("2.33.0", "")
    PACKAGES: ClassVar[Packages | None] = _PACKAGES
    FETCHES: ClassVar[Fetches] = "models"
    LOGS: ClassVar[tuple[Reader, ...]] = (read,)
    CHECKPOINTS: ClassVar[Checkpoints | None] = Checkpoints("output", "checkpoint", pattern="step-*", last=".metadata")
    UPSTREAM: ClassVar[Upstream | None] = Upstream(_REPOSITORY, "", "torchtitan.train", "beta; name a commit as --ref")
    REPLACES: ClassVar[Mapping[str, str]] = {
        "llama3.1-8b": "its program runs on PyTorch/XLA, which AWS ended for training. The model is a preset (trn submit torchtitan --preset llama3.1-8b)",
    }

    kind: Literal["torchtitan"] = "torchtitan"
    preset: Label | None = Field(
        default=None,
        description="Model, with all that it needs: qwen3-8b, llama3.1-8b, deepseek-v3-16b, gpt-oss-20b, qwen3-8b-sft, or one of the "
        "environment file (catalog: torchtitan). Other options change its values. Default, without module and config: qwen3-8b.",
    )
    module: PythonName | None = Field(default=None, description="TorchTitan's --module. Default: the preset's.")
    config: PythonName | None = Field(default=None, description="TorchTitan's --config. Default: the preset's.")
    override: tuple[Override, ...] = Field(
        default=(),
        description="Further option of TorchTitan, as KEY=VALUE or KEY, for example training.seq_len=4096. Repeat it for more.",
    )
    ref: (
        Annotated[
            str,
            Text(
                r"^[0-9a-f]{40}$",
                "a commit of 40 digits and small letters, as `git ls-remote` prints it",
                "0123456789abcdef0123456789abcdef01234567",
            ),
        ]
        | None
    ) = Field(default=None, description=f"Commit of {_REPOSITORY}, all 40 digits. Required.")
    model: fetching.HubModel | None = Field(
        default=None, description="Model on Hugging Face, whose tokenizer is fetched. Default: the preset's."
    )
    initial_weights: bool = Field(
        default=False, description="Fetch the model's weights too, as fine-tuning needs them."
    )
    assets: AbsolutePath | None = Field(
        default=None, description="Directory on the cluster with the model's files, which are not fetched then."
    )
    data: Data | None = Field(
        default=None,
        description="Directory on the cluster, or s3://, with a data set that the library datasets reads: JSON lines with `text`, or, of "
        "conversations, as its configuration expects. No internet is needed then. Default: the configuration's own.",
    )
    dataset: fetching.HubDataset | None = Field(
        default=None,
        description="Data set of the configuration on Hugging Face, to be fetched first: OWNER/NAME, or OWNER/NAME CONFIGURATION.",
    )
    chat: bool = Field(default=False, description="The data set has conversations, as for fine-tuning.")
    tensor_parallel: int = Field(
        default=1,
        ge=1,
        description="Degree of tensor parallelism that the configuration has: the NeuronCores of the job must divide by it.",
    )
    precompile: bool = Field(default=False, description="Not supported: TorchNeuron compiles while it runs.")
    steps: int = Field(default=10_000, ge=1, description="Optimizer steps.")
    checkpoint_interval: int = Field(default=500, ge=1, description="Steps between two checkpoints.")

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, data: Any) -> Any:
        """The preset's values, where no others are given."""
        from trainium_cdk.description.catalog import Catalog

        known, own = Catalog.load().torchtitan, [name for name in ("module", "config") if data.get(name)]
        name = data.get("preset", None if own else _DEFAULT)
        if name in known:
            return {**known[name].options, "preset": name, **data}
        if len(own) == 1:
            raise wrong(
                f"{own[0]} is given without {'config' if own == ['module'] else 'module'}. Give both, or --preset, one of {', '.join(known)}"
            )
        if not own:
            raise wrong(
                f"there is no preset {shown(name)}. Give --preset, one of {', '.join(known)}; or TorchTitan's --module and --config"
            )
        return data

    @property
    def label(self) -> str:
        return self.name or plain(f"{self.kind}-{self.preset}") if self.preset else super().label

    @property
    def cache_set(self) -> str:
        return self.cache_name or f"{self.kind}-{self.preset or self.config}"

    def batch(self, fleet: "Fleet", notes: list[str]) -> None:
        if self.ref is None:
            raise JobError(
                f"ref is not given, and no commit of {_URL} is pinned here: TorchTitan Neuron is in beta. "
                f"Give one as --ref; `git ls-remote {_URL} main` prints the newest"
            )
        if (fleet.cores * self.nodes) % self.tensor_parallel:
            raise JobError(
                f"{fleet.instance_type} has {fleet.cores} NeuronCores, which do not divide by the tensor parallelism "
                f"{self.tensor_parallel} of this configuration. Use another instance type"
            )
        if not (self.module or "").startswith(_OWN):
            notes.append(
                f"{self.module} {self.config} is a configuration of pytorch/torchtitan itself, written for GPUs: AWS names none for this model"
            )
        if not (self.data or self.dataset):
            notes.append(
                "the configuration's own data set, c4 if it names no other, is streamed from Hugging Face during training"
            )

    def check(self, plan: Plan) -> None:
        fetching.check_hub_home(self)
        if self.precompile:
            raise JobError(
                f"{self.kind} cannot precompile: TorchNeuron compiles while it runs. Submit it without --precompile"
            )
        if self.assets is None and self.model is None:
            raise JobError(
                "neither model nor assets is given, and the tokenizer is needed. Give --model OWNER/NAME or --assets DIRECTORY"
            )
        if self.model and self.assets is None:
            fetching.check_gated(self, self.model, "--assets")

    def layout(self, plan: Plan) -> Mapping[str, str | int]:
        # the position in the data is of each data-parallel worker
        return {"module": self.module or "", "config": self.config or "", "workers": plan.workers}

    def launch_environment(self, plan: Plan, torch: tuple[int, ...]) -> dict[str, str]:
        fetched = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"} if self.data or self.dataset else {}
        return {"LOG_RANK": "0", **fetched}

    @property
    def _source(self) -> fetching.Fetched:
        return fetching.source("torchtitan", SourceTree(_URL, self.ref or "", "TRN_TORCHTITAN_REF"), self.env)

    @property
    def _model(self) -> fetching.Fetched | None:
        return fetching.model(self.model, weights=self.initial_weights) if self.model and not self.assets else None

    @property
    def _data(self) -> fetching.Fetched | None:
        return fetching.data(self.data, "") if self.data else None

    def program(self, plan: Plan) -> Program:
        model, data = self._model, self._data
        assets: words.Word = model.place if model else words.shared(self.assets or "")
        started = (
            *(*_ONE_LOG, "-m", "torchtitan.train"),
            *("--module", self.module or "", "--config", self.config or "", "--training.steps", str(self.steps)),
            *("--dump_folder", (words.JOB, "/output"), "--hf_assets_path", assets),
            *("--checkpoint.enable", "--checkpoint.interval", str(self.checkpoint_interval)),
            *("--metrics.log_freq", "1", "--metrics.enable_tensorboard"),
            *(("--dataloader.dataset", "c4_test") if data and not self.chat else ()),  # reads any files with `text`
            *(("--dataloader.dataset_path", data.place) if data else ()),
            *words.options(self.override),
        )
        return Program(
            words.launch(*started),
            self._source.place,
            variables={"HF_HOME": words.HUB},
            folders=((words.JOB, "/output"),),
        )

    def prepare(self, plan: Plan) -> fetching.Steps:
        source, model, data = self._source, self._model, self._data
        needed = _PACKAGES.requirements(self, plan.cluster)
        itself: words.Words = ("-r", (*source.place, "/requirements.txt"), "-e", source.place)
        return (
            *source.steps,
            *fetching.packages(self.kind, _PACKAGES, needed, plan.cluster, self.image, *itself),
            *(model.steps if model else ()),
            *self._dataset(data),
        )

    def require(self, plan: Plan) -> words.Words:
        mounts = plan.cluster.mount_dirs
        return words.on_cluster(self.assets, mounts) + words.on_cluster(self.data, mounts)

    def _dataset(self, data: fetching.Fetched | None) -> fetching.Steps:
        if data:
            return (*data.steps, *fetching.dataset(data.place))
        name, _, configuration = (self.dataset or "").partition(" ")
        return fetching.dataset(name, configuration) if name else ()


KIND = TorchTitan
