"""Training jobs: described as data, submitted, and followed. Other programs import their names from `trainium_cdk.jobs`."""
