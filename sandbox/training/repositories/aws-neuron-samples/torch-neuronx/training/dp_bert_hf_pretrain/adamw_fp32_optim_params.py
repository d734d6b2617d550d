"""In place of the vendor's optimizer: the class that a job corrects. This training has no PyTorch, and keeps its state itself."""

from typing import Any


class AdamW_FP32OptimParams:  # noqa: N801  the vendor's name
    def load_state_dict(self, _: Any) -> None:
        raise TypeError("the sandbox's training has its own state")
