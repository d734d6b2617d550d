"""What a cluster does and what it costs, in CloudWatch."""

from trainium_cdk.observability.construct import TrnObservability
from trainium_cdk.observability.notices import TrnJobNotices

__all__ = ["TrnJobNotices", "TrnObservability"]
