"""The command `trn`, and jobs: describe, submit, follow. No AWS CDK."""
