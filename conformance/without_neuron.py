"""`sitecustomize.py` of Pythons that run NeuronX Distributed on CPUs: what it imports of the Neuron SDK, of AWS's SDK and of `datasets`, and
does not use here, is there by name."""

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any
from unittest.mock import MagicMock

ABSENT = ("torch_neuronx", "neuronxcc", "nki", "boto3", "botocore", "s3transfer", "awscrt", "tenacity", "datasets")
INFERENCE = tuple(f"neuronx_distributed.{name}" for name in ("trace", "kernels", "inference"))


class Absent:
    """Finds the modules that `these` says, and makes them."""

    def __init__(self, these: Callable[[str], bool]) -> None:
        self.these = these

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if self.these(name):
            return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> Any:
        made = MagicMock(name=spec.name)
        made.__name__, made.__path__, made.__spec__ = spec.name, [], spec
        made.get_platform_target = lambda: "trn1"
        return made

    def exec_module(self, _module: Any) -> None:
        pass


sys.meta_path.insert(0, Absent(lambda name: name.startswith(INFERENCE)))
sys.meta_path.append(Absent(lambda name: name.split(".")[0] in ABSENT))  # where they are not installed
