"""Llama 3.1 8B pre-training with TorchTitan on TorchNeuron (Trn2 and Trn3, Neuron SDK 2.33).

Sources: Neuron documentation, TorchTitan Neuron: supported models (release notes of 2026-10-19) and the tutorial that trains Llama with
SimpleFSDP (2026-10-15). The name of its configuration is not known here: the job must give it, like the commit.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import quote, templates
from trainium_cdk.jobs.kinds.torchtitan import Pretraining
from trainium_cdk.jobs.models import AbsolutePath, Upstream
from trainium_cdk.jobs.plan import Batch, Plan
from trainium_cdk.jobs.templates import Template
from trainium_cdk.outputs import Fleet

_TUTORIAL = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/training/torchtitan/tutorials/tutorial-simple-fsdp-training.html"

PythonName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]{0,199}$")]


class TorchTitanLlama(Pretraining):
    """Llama 3.1 8B pre-training, in the configuration that the job gives."""

    TITLE: ClassVar[str] = "Llama 3.1 8B pre-training with TorchTitan"
    UPSTREAM: ClassVar[Upstream | None] = Upstream(
        "aws-neuron/torchtitan-neuron",
        "",
        "--module and --config of AWS's SimpleFSDP tutorial",
        "beta; name a commit as --ref",
    )

    kind: Literal["torchtitan-llama3.1-8b"] = "torchtitan-llama3.1-8b"
    module: PythonName | None = Field(
        default=None, description="TorchTitan's --module, as AWS's tutorial names it. Required."
    )
    config: PythonName | None = Field(
        default=None, description="TorchTitan's --config, as AWS's tutorial names it. Required."
    )
    assets: AbsolutePath | None = Field(
        default=None,
        description="Directory on the cluster with the files of Llama's tokenizer, which is gated and cannot be fetched. Required.",
    )

    @property
    def configuration(self) -> tuple[str, str]:
        return self.module or "", self.config or ""

    @property
    def tokenizer(self) -> tuple[str, str]:
        return "", f'"${{TRN_SHARED_ROOT:-}}"{quote.word(self.assets or "")}'

    def batch(self, fleet: Fleet, notes: list[str]) -> Batch | None:
        if not (self.module and self.config):
            raise JobError(
                "module and config are not given, and the names of the configurations for Llama are not known here. Take them from "
                f"AWS's tutorial ({_TUTORIAL}), and give them as --module and --config"
            )
        if self.assets is None:
            raise JobError(
                "assets is not given: the tokenizer of Llama 3.1 is gated, so it cannot be fetched. Put its files on the cluster "
                "(scripts/download_hf_assets.py of TorchTitan, with your Hugging Face token), and name their directory as --assets"
            )
        return super().batch(fleet, notes)

    def template(self, plan: Plan) -> Template:
        made = super().template(plan)
        return Template(made.node, made.prepare, require=templates.on_cluster(self.assets or "", plan))


KIND = TorchTitanLlama
