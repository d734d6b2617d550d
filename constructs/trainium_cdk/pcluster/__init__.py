"""The Slurm engine: AWS ParallelCluster. Rendering its configuration (`config`) needs no CDK; `cluster` holds the constructs."""
