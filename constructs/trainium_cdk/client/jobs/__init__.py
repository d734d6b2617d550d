"""Training jobs: described as data, submitted, and followed. `trainium_cdk.client.jobs` has the names for other programs."""
