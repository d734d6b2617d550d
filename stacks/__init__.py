"""The stacks: one page for each. They are also in the package, as `trainium_cdk.stacks`: import them from there.

>>> from trainium_cdk.stacks import TrnEksStack
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainium_cdk import _lazy

if TYPE_CHECKING:
    from trainium_cdk.stacks.eks import TrnEksStack as TrnEksStack
    from trainium_cdk.stacks.pcluster import TrnPclusterStack as TrnPclusterStack
    from trainium_cdk.stacks.pcs import TrnPcsStack as TrnPcsStack

__getattr__, __all__ = _lazy.names(__name__)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
