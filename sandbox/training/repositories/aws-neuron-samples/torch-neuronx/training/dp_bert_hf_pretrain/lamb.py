"""Stand-in at the vendor's path: the small model of the sandbox brings its own optimizer."""
