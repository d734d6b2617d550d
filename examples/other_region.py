"""The Slurm cluster in a region other than the default: everything uses the stack's region.

cdk deploy --app "python examples/other_region.py"
"""

import aws_cdk as cdk

from trainium_cdk import TrnNetwork, TrnPcluster

app = cdk.App()
stack = cdk.Stack(app, "ExampleRegion", env=cdk.Environment(region="us-west-2"))

network = TrnNetwork(stack, "Network")
TrnPcluster(stack, "Slurm", vpc=network.vpc, cluster_name="example-west")
app.synth()
