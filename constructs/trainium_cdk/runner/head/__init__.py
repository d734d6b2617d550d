"""The program on the head or login node, run as the jobs' user: one request, one answer."""
