"""The complete workflow on this machine: deploy, submit, train, follow, destroy, and a check for leftovers."""
