"""Steps of a job before its nodes are asked for: they fetch sources, packages, data, models, checkpoints."""
