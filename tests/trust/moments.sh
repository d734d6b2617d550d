#!/bin/bash
# In the place of a program of Slurm's, whose path stands in the file beside this one: see moments.py.
name=${0##*/}
real=$(< "${0%/*}/real-$name")
if [[ -z ${MOMENTS:-} ]]; then exec "$real" "$@"; fi
for word; do
  if [[ $word == --job-name=* ]]; then
    id=${word#--job-name=}
    printf '%s\n' "${id%:*}" > "$MOMENTS.id"
  fi
done
job=$MOMENTS_JOBS/$(cat "$MOMENTS.id" 2> /dev/null)
phase='not begun'
if [[ -e $job/submitted.json ]]; then
  phase='written down'
elif [[ -e $MOMENTS.taken ]]; then
  phase='taken by Slurm'
elif [[ -e $MOMENTS.id ]]; then
  phase='writing files'
fi
if [[ $name == sbatch ]]; then : > "$MOMENTS.taken"; fi
printf '%s\n' "$phase" >> "$MOMENTS"
if [[ $(wc -l < "$MOMENTS") == "${MOMENT:-}" ]]; then
  client=$(ps -o ppid= -p "$PPID")
  case $MOMENT_ACTION in
    kill-client) kill -KILL "$client" ;;
    kill-both) kill -KILL "$client" 0 ;;
    *)
      trap '' TERM # it goes on, as the runner does
      kill "-$MOMENT_ACTION" "$client"
      sleep 1
      trap - TERM
      ;;
  esac
fi
unset MOMENTS # a job gets the variables of its submission, and starts programs, too
exec "$real" "$@"
