"""What runs on the virtual nodes in place of the vendor's training scripts: small, real, and only the standard library.

Run by the nodes' own Python from this directory; it imports nothing of the rest of the project.
"""
