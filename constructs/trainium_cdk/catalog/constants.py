"""Facts that are one value each."""

from typing import Literal

Fetches = Literal["files", "builds", "models"]
"""What `prepare` of a job does, by which it needs memory: it fetches files, builds packages, or downloads models from Hugging Face."""
GATEWAY_ENDPOINTS = frozenset({"dynamodb"})
"""Services of `network.interface_endpoints` that get a gateway endpoint: it is free, and their interface endpoint has no private DNS
(VPC user guide, gateway endpoints, 2026-11). S3 has a setting of its own."""
HOURS_OF_A_MONTH = 730
"""What AWS's pricing pages and calculator take a month for (2026-11)."""
ULTRASERVER = "jobs do not use the NeuronLink between the instances of an UltraServer: over several instances they communicate through EFA"
"""Neuron documents it for MPI jobs and, as a beta, for its own Kubernetes operator, not for torchrun jobs (2026-11). So they do not get the
environment variables for it."""
