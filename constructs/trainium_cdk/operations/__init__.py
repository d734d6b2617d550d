"""What is done to a deployed stack: scaled, updated, taken down."""
