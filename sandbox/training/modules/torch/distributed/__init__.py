"""See `torch`."""
