"""A fake at the vendor's path: the sandbox's small model has its own optimizer."""
