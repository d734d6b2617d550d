"""What a job fetches before its nodes are asked for: sources, packages, data, models, checkpoints."""
