"""See `torch_xla`."""

from collections.abc import Iterator
from typing import Any


class MpDeviceLoader:
    def __iter__(self) -> Iterator[Any]:
        raise TypeError("the sandbox's training reads its data itself")
