"""Jobs on Slurm: at most two Slurm jobs, submitted by the runner on the head node of a stack's cluster."""
