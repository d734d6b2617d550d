"""Files for the nodes: the scripts, and the settings that they read."""
