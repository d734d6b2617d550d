"""Pre-training with TorchTitan on TorchNeuron (Trn2 and Trn3, Neuron SDK 2.33): what its kinds share, and Qwen3-8B.

Sources: Neuron documentation, TorchTitan Neuron (set-up of 2026-10-18, basic training tutorial of 2026-10-15); options of
pytorch/torchtitan, of which the vendor's repository is a fork. The fork has no release, and no commit of it is pinned here: the job
must give one.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import templates
from trainium_cdk.jobs.models import Job, Upstream
from trainium_cdk.jobs.packages import Packages
from trainium_cdk.jobs.plan import Batch, Plan
from trainium_cdk.jobs.records import NUMBER, Reader, Step, parse_number
from trainium_cdk.jobs.templates import Option, Template
from trainium_cdk.outputs import Fleet

_REPOSITORY = "aws-neuron/torchtitan-neuron"
_URL = f"https://github.com/{_REPOSITORY}.git"
_MODULE = "torchtitan_neuron.models.qwen3"
_CONFIG = "qwen3_8b_tp4_fsdp16_sac"
_TENSOR_PARALLEL = 4
_ASSETS = ("Qwen/Qwen3-8B", "config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
_PACKAGES = Packages(pins=("huggingface-hub",), also="TorchTitan's commit and its requirements.txt")
_SOURCE = '"$trn/src/torchtitan-$torchtitan_ref"'
_ONE_LOG = "--local-ranks-filter 0 --role rank --tee 3"
"""Options of the launcher, as TorchTitan's run_train.sh sets them: every worker logs every step, and the log shows one worker per node."""
_LINE = re.compile(r"\bstep:\s{0,20}(?P<step>\d{1,15})\s{1,4}(?P<rest>loss:[^\r\n]{1,400})")
_PAIR = re.compile(rf"(?P<key>\w{{2,20}}):\s{{0,20}}(?P<value>{NUMBER}|\d{{1,3}}(?:,\d{{3}}){{1,5}})(?=[\s%G]|$)")


def read(text: str) -> Iterator[tuple[int, Step]]:
    """TorchTitan's lines, without their colours."""
    for match in _LINE.finditer(text):
        values = {m["key"]: parse_number(m["value"].replace(",", "")) for m in _PAIR.finditer(match["rest"])}
        step = Step(
            int(match["step"]),
            values.get("loss"),
            grad_norm=values.get("grad_norm"),
            tokens_per_second=values.get("tps"),
        )
        yield match.start(), step


class Pretraining(Job):
    """Base class of the TorchTitan kinds. A subclass defines the configuration and the tokenizer."""

    FRAMEWORKS: ClassVar[tuple[str, ...]] = ("torch-native",)
    FAMILIES: ClassVar[tuple[str, ...]] = ("trn2", "trn2u", "trn3")
    RELEASES: ClassVar[tuple[str, str]] = ("2.33.0", "")
    PACKAGES: ClassVar[Packages | None] = _PACKAGES
    LOGS: ClassVar[tuple[Reader, ...]] = (read,)

    precompile: bool = Field(default=False, description="Not supported: TorchNeuron compiles while it runs.")
    steps: int = Field(default=10_000, ge=1, description="Optimizer steps.")
    ref: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")] | None = Field(
        default=None, description=f"Commit of {_REPOSITORY}, all 40 digits. Required."
    )
    checkpoint_interval: int = Field(default=500, ge=1, description="Steps between two checkpoints.")

    @property
    @abstractmethod
    def configuration(self) -> tuple[str, str]:
        """Module and name of the configuration: TorchTitan's --module and --config."""

    @property
    @abstractmethod
    def tokenizer(self) -> tuple[str, str]:
        """(shell lines that fetch the tokenizer, its folder, quoted for the shell)."""

    def batch(self, fleet: Fleet, notes: list[str]) -> Batch | None:
        if self.ref is None:
            raise JobError(
                f"ref is not given, and no commit of {_URL} is pinned here: TorchTitan Neuron is in beta, without a release. "
                f"Give one as --ref; `git ls-remote {_URL} main` prints the newest"
            )
        notes.append("the data set c4 is streamed from Hugging Face during training")
        return None  # defined by the configuration

    def check(self, plan: Plan) -> None:
        if self.precompile:
            raise JobError(
                f"{self.kind} cannot precompile: TorchNeuron compiles while it runs. Submit it without --precompile"
            )

    def launch_environment(self, plan: Plan, torch: tuple[int, ...]) -> dict[str, str]:
        return {"LOG_RANK": "0"}

    def template(self, plan: Plan) -> Template:
        (module, config), (fetch, assets) = self.configuration, self.tokenizer
        options: list[Option] = [
            f"--module {module} --config {config}",
            f"--training.steps {self.steps}",
            '--dump_folder "$job/output"',
            '--hf_assets_path "${assets[0]}"',
            f"--checkpoint.enable --checkpoint.interval {self.checkpoint_interval}",
            "--metrics.log_freq 1 --metrics.enable_tensorboard",
        ]
        node = f"""torchtitan_ref=${{TRN_TORCHTITAN_REF:-{self.ref}}}
cd "$trn/src/torchtitan-$torchtitan_ref"
assets=({assets})
mkdir -p "$job/output"
{templates.command(f"{_ONE_LOG} -m torchtitan.train", options)}
"${{command[@]}}\""""
        prepare = f"""torchtitan_ref=${{TRN_TORCHTITAN_REF:-{self.ref}}}
source_tree torchtitan {_URL} "$torchtitan_ref"
{_PACKAGES.lines(self, plan.cluster, f"-r {_SOURCE}/requirements.txt -e {_SOURCE}")}
{fetch}""".rstrip()
        return Template(node, prepare)


class TorchTitan(Pretraining):
    """Qwen3-8B pre-training in eager mode: tensor parallelism 4, FSDP over the rest, selective activation checkpointing."""

    TITLE: ClassVar[str] = "Qwen3-8B pre-training with TorchTitan"
    UPSTREAM: ClassVar[Upstream | None] = Upstream(
        _REPOSITORY, "", f"{_MODULE} {_CONFIG}", "beta; name a commit as --ref"
    )

    kind: Literal["torchtitan-qwen3-8b"] = "torchtitan-qwen3-8b"

    @property
    def configuration(self) -> tuple[str, str]:
        return _MODULE, _CONFIG

    @property
    def tokenizer(self) -> tuple[str, str]:
        folder = f'"$trn/hf_cache/hub/models--{_ASSETS[0].replace("/", "--")}/snapshots"/*'
        return f"hugging_face {' '.join(_ASSETS)}", folder

    def batch(self, fleet: Fleet, notes: list[str]) -> Batch | None:
        if (fleet.cores * self.nodes) % _TENSOR_PARALLEL:
            raise JobError(
                f"{fleet.instance_type} has {fleet.cores} NeuronCores, which do not divide by the tensor parallelism {_TENSOR_PARALLEL} "
                "of this configuration. Use another instance type"
            )
        return super().batch(fleet, notes)


KIND = TorchTitan
