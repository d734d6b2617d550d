"""Jobs on Slurm: a chain of Slurm jobs, submitted by one script on the head node of a stack's cluster."""
