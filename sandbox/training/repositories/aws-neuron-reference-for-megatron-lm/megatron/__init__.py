"""Stand-in at the vendor's path."""
