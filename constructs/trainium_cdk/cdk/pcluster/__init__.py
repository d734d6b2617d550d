"""The constructs of Slurm on AWS ParallelCluster."""
