"""The Slurm engine on AWS Parallel Computing Service (PCS)."""
