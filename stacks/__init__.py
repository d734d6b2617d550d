"""The stacks: one page for each. They are also in the package, as `trainium_cdk.stacks`: import them from there.

>>> from trainium_cdk.stacks import TrnEksStack
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainium_cdk import _lazy

_HOMES = {
    "TrnEksStack": "stacks.eks",
    "TrnPclusterStack": "stacks.pcluster",
    "TrnPcsStack": "stacks.pcs",
}

if TYPE_CHECKING:
    from trainium_cdk.stacks.eks import TrnEksStack as TrnEksStack
    from trainium_cdk.stacks.pcluster import TrnPclusterStack as TrnPclusterStack
    from trainium_cdk.stacks.pcs import TrnPcsStack as TrnPcsStack
else:
    __getattr__ = _lazy.attributes(__name__, _HOMES)

__all__ = sorted(_HOMES)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
