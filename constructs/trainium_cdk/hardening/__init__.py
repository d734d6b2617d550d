"""What makes the stacks hard, for any stack: one key for everything that can have one."""
