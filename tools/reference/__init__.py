"""The pages of the site that are made from the code, and all others with them: `make docs`."""
