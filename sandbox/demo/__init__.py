"""The whole journey on this machine: deploy, submit, train, follow, destroy, and proof that nothing is left."""
