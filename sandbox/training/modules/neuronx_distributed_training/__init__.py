"""Nothing: it is here so that the environment has it, as one with NxD Training installed."""
