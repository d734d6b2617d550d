"""Deleting a stack completely: its jobs, the stack itself, and resources that its parts created outside it.

>>> from trainium_cdk.client.operations.teardown import Owner
>>> Owner("S", "arn:id", cluster="c", engine="eks").why({"kubernetes.io/cluster/c": "owned"})
'it is tagged kubernetes.io/cluster/c = owned'
"""

from trainium_cdk.client.operations.teardown.destroy import RemovalReport, destroy
from trainium_cdk.client.operations.teardown.owner import Owner
from trainium_cdk.client.operations.teardown.survey import Survey, survey

__all__ = ["Owner", "RemovalReport", "Survey", "destroy", "survey"]
