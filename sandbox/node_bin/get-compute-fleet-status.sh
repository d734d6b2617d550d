#!/bin/bash
# Replaces ParallelCluster's script of this name on a head node. Its daemon, which stops and starts nodes, is not there: what was
# requested is done when the status is read for the second time.
file=${TRN_SHARED_ROOT:?}/fleet-status
if [ ! -e "$file" ]; then echo RUNNING > "$file"; fi
status=$(cat "$file")
printf '{"lastStatusUpdatedTime": "%s", "status": "%s"}\n' "$(date -u -r "$file" +%FT%T.000Z)" "$status"
case $status in
  STOP_REQUESTED) echo STOPPED > "$file" ;;
  START_REQUESTED) echo RUNNING > "$file" ;;
esac
