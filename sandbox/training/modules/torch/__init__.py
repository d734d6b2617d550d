"""`python3 -m torch.distributed.run`, which starts processes, and the names that a job's corrections replace. Training is in `fakes`,
which keeps its state itself, or uses the real torch."""

from typing import Any

_OWN = "the sandbox's training has its own state"


def save(_data: Any, *_: Any, **__: Any) -> None:
    raise TypeError(_OWN)


def load(*_: Any, **__: Any) -> Any:
    raise TypeError(_OWN)
