"""Small programs that replace the vendor's training scripts on the virtual nodes; standard library only.

The nodes' Python runs them from this directory; they import nothing else of the project.
"""
