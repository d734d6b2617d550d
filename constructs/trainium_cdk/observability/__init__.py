"""What a cluster does and what it costs, in CloudWatch."""

from trainium_cdk.observability.construct import TrnObservability

__all__ = ["TrnObservability"]
