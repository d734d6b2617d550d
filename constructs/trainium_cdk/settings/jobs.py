"""What is done about the jobs of an environment."""

from __future__ import annotations

from typing import Literal

from trainium_cdk.settings.base import Settings


class Health(Settings):
    """What is done about a training that runs, and does not go on. It is always told: `trn status JOB`."""

    hang: Literal["tell", "restart"] = "tell"
    """A training that makes no step for far longer than usual: `tell`, or `restart` it from its newest complete checkpoint. After three restarts
    without a new step between them, the job has failed."""
    nan: Literal["tell", "stop"] = "tell"
    """A loss that is no number any more: `tell`, or `stop` the job after five such steps."""

    device: Literal["tell", "replace"] = "replace"
    """A node of which a device has an error that its memory could not correct, as root measured it: `replace` it, and let its job go on with other
    nodes; or `tell`. After three such nodes without a new step between them, the job has failed."""

    @property
    def actions(self) -> str:
        """What is not only told, as the stack's output has it: `hang=restart nan=stop`; empty for nothing."""
        chosen = {name: getattr(self, name) for name in ("hang", "nan")}  # of devices, the nodes themselves know
        return " ".join(f"{name}={value}" for name, value in chosen.items() if value != "tell")


class Jobs(Settings):
    """What is done about jobs, on every cluster of the environment."""

    health: Health = Health()
