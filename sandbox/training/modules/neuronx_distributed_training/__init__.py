"""Empty: only has to be importable, as where NxD Training is installed."""
