"""Only what starts processes: `python3 -m torch.distributed.run`. What trains is in `standin`, or is the real torch."""
