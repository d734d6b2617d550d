"""What marks resources of a cluster of AWS PCS."""

from trainium_cdk.operations.teardown.owner import Traces

TRACES = Traces(cluster_resource="AWS::PCS::Cluster")
