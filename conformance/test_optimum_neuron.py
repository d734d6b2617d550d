"""The parser of Optimum Neuron's examples accepts the arguments of the kind `lora`."""

from __future__ import annotations

import pytest

from conformance import surface
from conformance.launched import launched
from conformance.test_programs import original, program, source_tree
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.catalog import Catalog
from trainium_cdk.jobs import Lora
from trainium_cdk.jobs.kinds.lora import EXAMPLES, PACKAGES

NEURON = Catalog.load().release("2.26.1")
TRN1 = make_cluster(fleet(), neuron_release=NEURON.version, neuron_driver=NEURON.dkms, os="ubuntu2204")
_ARGUMENTS = "optimum/neuron/trainers/training_args.py"


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.original(f"lora: arguments, {m}", original(Lora))) for m in EXAMPLES]
)
def test_the_examples_take_our_arguments(model: str) -> None:
    tree = source_tree(Lora)
    source = tree.read(_ARGUMENTS)
    assert source is not None
    for stage in ("precompile", "train"):
        start = launched(Lora(model=model, weights="/efs/model", nodes=2), TRN1, stage=stage)
        example = program(tree, start)
        assert f'"{EXAMPLES[model].dataset}"' in example
        parser = surface.dataclass_parser((example, "ScriptArguments"), (source, "NeuronTrainingArguments"))
        parsed = parser.parse_args(start.arguments)
        assert (parsed.model_id, parsed.tensor_parallel_size, parsed.zero_1, parsed.bf16) == (
            "/efs/model",
            8,
            True,
            True,
        )
        assert parsed.max_steps == (5 if stage == "precompile" else -1)
        assert parsed.gradient_accumulation_steps == EXAMPLES[model].accumulation
        with pytest.raises(surface.Refused, match="no_such_option"):
            parser.parse_args([*start.arguments, "--no_such_option", "1"])


@pytest.mark.original("lora: the Neuron SDK that its release pins", original(Lora))
def test_its_release_pins_the_versions_of_the_catalog() -> None:
    tree = source_tree(Lora)
    version, pins = tree.read("optimum/neuron/version.py"), tree.read("pyproject.toml")
    assert version is not None
    assert pins is not None
    assert f'__sdk_version__ = "{NEURON.version}"' in version
    [release] = [pin.partition("==")[2] for pin in PACKAGES if pin.startswith("optimum-neuron")]
    assert f'__version__ = "{release}"' in version
    assert f'"torch-neuronx=={NEURON.frameworks["torch-xla"].version}"' in pins
    assert f'"neuronx-cc=={NEURON.compiler}"' in pins
    assert f'"neuronx_distributed=={NEURON.libraries["neuronx_distributed"]}"' in pins
