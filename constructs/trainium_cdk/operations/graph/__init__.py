"""The architecture of a stack as a picture, from its template: what there is, where it is, and where data flows."""

from trainium_cdk.operations.graph.mermaid import mermaid
from trainium_cdk.operations.graph.model import Architecture, Box, Flow
from trainium_cdk.operations.graph.picture import picture
from trainium_cdk.operations.graph.read import read

__all__ = ["Architecture", "Box", "Flow", "mermaid", "picture", "read"]
