"""The network: a VPC with subnets by availability zone id, or one that exists; and what leads in and out of it."""

from trainium_cdk.network.peering import TrnPeering
from trainium_cdk.network.vpc import TrnNetwork

__all__ = ["TrnNetwork", "TrnPeering"]
