"""What runs on the head or login node, as the jobs' user: one request, one answer."""
