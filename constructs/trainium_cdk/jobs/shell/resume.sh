# shellcheck shell=bash
# Going on from another job's checkpoints; appended to checkpoints.sh, where `die` ends the script with a message.
# Of the directory, it is only read.

# Whether each of these jobs has its checkpoint already.
resumed() { # directory of a job...
  local each
  for each in "$@"; do
    if [ ! -e "$each/state/resumed" ]; then return 1; fi
  done
}

# of_kind NAME DIRECTORY KIND: ends if the record of that job's directory, which Slurm's jobs have, names another kind.
of_kind() {
  local kind
  if [ ! -f "$2/summary.json" ]; then return 0; fi
  kind=$(head -c 4000 "$2/summary.json" | sed -n 's/.*"kind": "\([a-z0-9.-]\{1,40\}\)".*/\1/p' | head -n 1)
  if [ -n "$kind" ] && [ "$kind" != "$3" ]; then
    die "$1 is a job of kind $kind, whose checkpoints $3 does not read. Submit the same kind, or name another job"
  fi
}

# source_of NAME DIRECTORY PLACE FUNCTION KIND [KEY VALUE...]: sets `newest` to what is copied, and `whole` if that is the directory itself. The
# keys have the same values in both jobs.
newest='' whole=''
source_of() {
  local name=$1 from place=$3 function=$4 kind=$5 key value there
  from=$(readlink -e "$2") || true # find does not follow a link that it is given
  shift 5
  if [ ! -d "$from" ]; then die "there is no directory of checkpoints $name on the cluster. Check the path, or the job's id"; fi
  if [ -f "$from/trn-checkpoints" ]; then
    while [ "$#" -gt 1 ]; do
      key=$1 value=$2
      shift 2
      there=$(sed -n "s/^$key //p" "$from/trn-checkpoints" | head -n 1 | LC_ALL=C tr -cd ' -~' | head -c 100)
      if [ "$there" = "$value" ]; then continue; fi
      if [ "$key" = kind ]; then die "$name has checkpoints of ${there:-another kind}, not of $value. Submit the same kind, or name others"; fi
      die "$name has checkpoints of a job with $key ${there:-unknown}, and this job has $key $value, with which they cannot be read. Submit it with the same"
    done
  fi
  if [ -z "$function" ]; then
    newest=$from whole=1
    if [ -n "$(find "$from" -mindepth 1 ! -type d ! -name trn-checkpoints -print -quit)" ]; then return 0; fi
  else
    newest=$("$function" "$from${place:+/$place}")
    if [ -z "$newest" ] && [ -n "$place" ]; then newest=$("$function" "$from"); fi
    if [ -n "$newest" ]; then return 0; fi
  fi
  die "$name has no checkpoint of $kind that was written to its end. Wait for one, or name another directory or job"
}

# go_on FOLDER PLACE DIRECTORY...: copies `newest` into the folder of checkpoints of each of these jobs, once: a job that has begun is left alone.
go_on() {
  local folder=$1${2:+/$2} each part to size
  shift 2
  for each in "$@"; do
    if [ -e "$each/state/resumed" ]; then continue; fi
    to=$each/$folder/${newest##*/}
    if [ -n "$whole" ]; then to=$each/$folder; fi
    part=$each/resumed.part
    if [ ! -e "$to" ]; then
      size=$(du -sb "$newest" | cut -f 1)
      rm -rf "$part"
      mkdir -p "$part" "${to%/*}" "$each/state"
      room "$newest" "$size" "$part"
      say "copying $newest, $size bytes, to $to"
      copy "$newest" "$part/copied"
      mv -T "$part/copied" "$to"
      rm -rf "$part"
    fi
    : > "$each/state/resumed"
  done
}

# copy FROM TO: several files at once, as one is slow on a network file system. Links stay links.
copy() {
  if [ ! -d "$1" ]; then
    cp --preserve=timestamps "$1" "$2"
    return 0
  fi
  mkdir -p "$2"
  (cd "$1" && find . -type d -print0) | (cd "$2" && xargs -0 mkdir -p)
  (cd "$1" && find . ! -type d -print0 | xargs -0 -r -n 16 -P "$STREAMS" cp -P --preserve=timestamps --parents -t "$2")
}
