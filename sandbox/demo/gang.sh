#!/bin/bash
# The demo's job: each node sums its share of the squares up to a million, and node 0 adds up the results.
set -eu
share=sums # in the folder of the job, which its nodes share
mkdir -p "$share"
echo "node $NODE_RANK of $NNODES, rank 0 at $MASTER_ADDR"
getent hosts "$MASTER_ADDR" > /dev/null
sum=0
for ((i = NODE_RANK + 1; i <= 1000000; i += NNODES)); do
  sum=$((sum + i * i))
done
echo "$sum" > "$share/$NODE_RANK.part"
mv "$share/$NODE_RANK.part" "$share/$NODE_RANK"
echo "my share: $sum"
if [ "$NODE_RANK" = 0 ]; then
  total=0
  for ((n = 0; n < NNODES; n++)); do
    until [ -e "$share/$n" ]; do sleep 0.1; done
    total=$((total + $(< "$share/$n")))
  done
  echo "together: $total"
  [ "$total" = $((1000000 * 1000001 * 2000001 / 6)) ] # the closed formula
fi
