"""What maintainers alone run."""
