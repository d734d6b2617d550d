"""Readers of what jobs write: records of a log, and why a program ended. Pure; the standard library alone, Python 3.9 or newer, and nothing
of the package outside this folder: it can run on a cluster's nodes."""
