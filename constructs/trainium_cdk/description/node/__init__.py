"""Files for the nodes: the scripts, the settings that they read, and an image in which they have run."""
