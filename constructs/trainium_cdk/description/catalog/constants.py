"""Facts that are one value each."""

from typing import Literal

Fetches = Literal["files", "builds", "models"]
"""Work of a job's `prepare` that needs memory: it fetches files, builds packages, or downloads models from Hugging Face."""
GATEWAY_ENDPOINTS = frozenset({"dynamodb"})
"""Services of `network.interface_endpoints` that get a gateway endpoint: it is free, and their interface endpoint has no private DNS
(VPC user guide, gateway endpoints, 2026-11). S3 has its own setting."""
AWS_BUCKETS = (
    "prod-{region}-starport-layer-bucket",  # layers of images in ECR
    "al2023-repos-{region}-de612dc2",
    "{region}-aws-parallelcluster",
    "aws-pcs-repo-{region}",
    "fsx-lustre-client-repo",
    "amazoncloudwatch-agent",
    "amazoncloudwatch-agent-{region}",
    "aws-ssm-{region}",
    "amazon-ssm-{region}",
    "amazon-ssm-packages-{region}",
    "{region}-birdwatcher-prod",
    "aws-ssm-document-attachments-{region}",
    "patch-baseline-snapshot-{region}",
    "neuron-s3",  # public data sets of the kinds of jobs
    "models.huggingface.co",
)
"""Buckets of AWS's own, and of public data, that nodes read (aws-samples/data-perimeter-policy-examples, s3_endpoint_policy.json; user guides of
ECR, Systems Manager, FSx for Lustre and PCS, 2026-11). (?) None was tried: a node behind such a policy has not run on AWS."""
CLOUDFORMATION_BUCKETS = ("cloudformation-waitcondition-{region}", "cloudformation-custom-resource-response-{joined}")
"""Where functions of a stack answer to CloudFormation; `joined` is the region without hyphens (same sources)."""
BLOCK_STOPS_EARLY = 1800
"""Seconds before the end of a capacity block from which EC2 ends its instances. It announces that 10 minutes earlier (EC2 user guide, Capacity Blocks,
"Monitor Capacity Blocks using EventBridge", 2026-11)."""
BLOCK_STOPS_EARLY_ON_EKS = 2400
"""The same of a managed node group, which EKS scales to 0 then (EKS user guide, "Create a managed node group with Capacity Blocks", 2026-11)."""
HOURS_OF_A_MONTH = 730
"""Hours of a month on AWS's pricing pages and in its calculator (2026-11)."""
ULTRASERVER = "jobs do not use the NeuronLink between the instances of an UltraServer: over several instances they communicate through EFA"
"""Neuron documents it for MPI jobs and, as a beta, for its own Kubernetes operator, not for torchrun jobs (2026-11). So they do not get the
variables for it."""
JAX = "JAX on Neuron is a beta of AWS: some functions of JAX do not work. It is for programs in JAX, as of AXLearn and MaxText"
"""Setup guide of JAX (2026-09-30), and known issues of JAX NeuronX."""
