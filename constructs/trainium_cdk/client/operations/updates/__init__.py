"""Consequences of a deployment for a deployed stack: which change replaces, loses or interrupts what.

Without CDK and AWS, except for `trainium_cdk.client.operations.updates.live`.

>>> from trainium_cdk.client.operations.updates import compare, Spec
>>> compare({"Resources": {}}, {"Resources": {}}, Spec.load())
[]
"""

from trainium_cdk.client.operations.updates.change import LEVELS, Change, Level, dangerous
from trainium_cdk.client.operations.updates.compare import compare
from trainium_cdk.client.operations.updates.spec import Spec

__all__ = ["LEVELS", "Change", "Level", "Spec", "compare", "dangerous"]
