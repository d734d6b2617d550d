"""What travels to the nodes: the scripts, and the settings that they read."""
