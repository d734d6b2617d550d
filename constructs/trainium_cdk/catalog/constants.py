"""Facts that are one value each."""

GATEWAY_ENDPOINTS = frozenset({"dynamodb"})
"""Services of `network.interface_endpoints` that get a gateway endpoint: it is free, and their interface endpoint has no private DNS
(VPC user guide, gateway endpoints, 2026-11). S3 has a setting of its own."""
HOURS_OF_A_MONTH = 730
"""What AWS's pricing pages and calculator take a month for (2026-11)."""
