"""The network: a new or existing VPC with subnets by availability zone id, endpoints and peerings."""

from trainium_cdk.cdk.network.peering import TrnPeering
from trainium_cdk.cdk.network.vpc import TrnNetwork

__all__ = ["TrnNetwork", "TrnPeering"]
