"""What an environment is, and whether it can be: facts, settings, rules, and the contract between stacks and jobs. No AWS CDK."""
