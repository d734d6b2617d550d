"""Hardening of stacks, for any stack: one key for everything that can have one."""
