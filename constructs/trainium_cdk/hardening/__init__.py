"""What makes the stacks hard, for any stack: one key, managed policies, and a queue for failed calls."""
