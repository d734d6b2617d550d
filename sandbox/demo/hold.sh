#!/bin/bash
# The demo's second job: it would occupy its nodes for an hour.
set -eu
echo "node $NODE_RANK of $NNODES"
exec sleep 3600
