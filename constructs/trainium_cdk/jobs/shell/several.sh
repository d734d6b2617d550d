# shellcheck shell=bash
# Part of a script for one of several users. It has set: trn (the folder of that user), mark and ask where it queries jobs (ask.sh).
: "${trn:?}"

# Each user but the image's has a folder of its own. Everyone may create one there: a link, or a folder of another user, is not used.
if [[ $trn == */trn-users/* ]]; then
  if [[ ! -e $trn && ! -L $trn ]]; then mkdir -m 700 "$trn" 2> /dev/null || true; fi
  if [[ ! -d ${trn%/*} ]]; then
    printf '%s\n' "there is no ${trn%/*}: the head node's bootstrap makes it where a cluster has several users, and has not finished" >&2
    exit 77
  elif [[ -L $trn || ! -d $trn || ! -O $trn ]]; then
    printf '%s\n' "$trn is not a folder of $(id -un), but $(stat -c 'a %F of %U' "$trn"). An administrator can remove it" >&2
    exit 77
  fi
fi

# Only this user's jobs: others can give theirs the same name.
squeue() { command squeue --user="$UID" "$@"; }
scancel() { command scancel --user="$UID" "$@"; }

# Ends the script, as a job is not this user's: with code 4 if there is none, else with what Slurm tells of it, or a refusal.
absent() { # id, "show" or what only its owner can do
  local owner
  : "${mark:?}"
  unset -f squeue
  ask --name="$1:prepare,$1:precompile,$1:train" -o "$mark active %u|%P|%D|%A|%T|%r|%N|%S|%e|%j|%k"
  if [ -z "$answer" ]; then exit 4; fi
  if [ "$2" = show ]; then
    printf '%s\n' "$answer"
    exit 0
  fi
  owner=${answer#"$mark active "}
  printf '%s\n' "$1 is a job of ${owner%%|*}, and you are $(id -un): only ${owner%%|*} can $2" >&2
  exit 77
}
