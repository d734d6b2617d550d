"""The base class of catalogue entries."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

HttpsUrl = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9._~:/?#@!&+,;=%-]+$")]
"""What the nodes' settings take (bootstrap/lib/settings.sh), too."""


class Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
