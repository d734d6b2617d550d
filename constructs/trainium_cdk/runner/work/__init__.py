"""Programs in a job: the batch script, and the program of a stage on each node."""
