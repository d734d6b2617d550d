"""Helpers of the constructs. Nothing in here is public."""
