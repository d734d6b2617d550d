"""Observability of a cluster in CloudWatch: its activity and its cost."""

from trainium_cdk.cdk.observability.construct import TrnObservability
from trainium_cdk.cdk.observability.notices import TrnJobNotices

__all__ = ["TrnJobNotices", "TrnObservability"]
