"""The base class of catalogue entries."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict

from trainium_cdk.text import Text

HttpsUrl = Annotated[
    str,
    Text(
        r"^https?://[A-Za-z0-9._~:/?#@!&+,;=%-]+$",
        "an address that begins with https:// or http://",
        "https://mirror.example.com/simple",
    ),
]
"""URL that the nodes' settings take, too (bootstrap/lib/settings.sh)."""


class Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
