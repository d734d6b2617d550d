#!/bin/bash
# Replaces ParallelCluster's script of this name, with what its daemon does then: queues become INACTIVE and nodes end, with their jobs.
[ "$1 $#" = '--status 2' ] || { echo "usage: $0 --status STATUS" >&2; exit 2; }
case $2 in
  STOP_REQUESTED) partitions=INACTIVE nodes=(state=down reason=stopped) ;;
  START_REQUESTED) partitions=UP nodes=(state=resume) ;;
  *) echo "$2 is not supported" >&2; exit 2 ;;
esac
echo "$2" > "${TRN_SHARED_ROOT:?}/fleet-status"
for partition in $(sinfo -h -a -o %R); do scontrol update "partitionname=$partition" "state=$partitions"; done
scontrol update nodename=ALL "${nodes[@]}"
