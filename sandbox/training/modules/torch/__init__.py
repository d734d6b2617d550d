"""Only `python3 -m torch.distributed.run`, which starts processes. Training is in `fakes`, or uses the real torch."""
