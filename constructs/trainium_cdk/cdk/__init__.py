"""The constructs, and what only they need. They start the AWS CDK, which starts Node."""
