"""Goodput of a training whose nodes fail: `make bench GOODPUT=1`. It is what new steps take, in the time for which nodes are paid.

Each fault of a day (`data.yaml`) happens to a training of countable steps (`training.py`), on a real Slurm of 16 nodes, and some to one on
a real API server with Kueue and JobSet. Measured is what the runner and the scheduler take until the training does steps again, and which steps it
does twice. Hours without a fault are left out, and the times after which a hang is seen are shortened; they count as they are set. What the local
machines do not have counts as published: a node's start, and the clocks by which AWS's daemons see that one is gone.
"""
