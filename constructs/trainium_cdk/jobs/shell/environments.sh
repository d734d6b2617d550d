# shellcheck shell=bash
# Python environments of jobs, on the shared file system. Sourced after fetch.sh; prepare.sh has also set: base (what the name of an
# environment begins with: the image, or the cluster's environment) and index (Neuron's packages).
: "${job:?}" "${trn:?}"

# What a kind adds to its environment after pip, in the activated environment. A kind that needs it defines it again.
steps() { :; }

# environment KIND REQUIREMENT...: $python becomes that of the job's own environment: these packages on top of those that $python
# has. It is named after all of them, made once, and never changed: whatever another job needs, or the cluster gets, is another one.
environment() {
  local kind=$1 name
  shift
  : "${base:?}" "${index:?}"
  if ! command -v "$python" > /dev/null; then
    die "there is no $python: the head node's bootstrap has not finished, or failed"
  fi
  name=$("$python" -c "$ENVIRONMENT" name "$base" "$@" "$(declare -f steps)")
  once "environment-$name" "$trn/environments/$name" make_environment "$kind" "$name" "$@"
  python=$trn/environments/$name/bin/python3
  printf '%s\n' "$name" > "$job/environment.part"
  mv "$job/environment.part" "$job/environment"
}

# In a folder of its own, which then gets the name: an environment exists whole or not at all. (The folder itself cannot be renamed:
# its programs begin with its path.) Downloads are kept, so that a second attempt is short.
make_environment() {
  local kind=$1 name=$2 place megabytes began=$SECONDS
  shift 2
  if [ -e "$trn/environments/$name" ]; then return 0; fi
  mkdir -p "$trn/environments"
  rm -rf "$trn/environments/.$name".*
  place=$(mktemp -d "$trn/environments/.$name.XXXXXX")
  chmod 755 "$place"
  say "making environment $name of $kind, on $base: $*"
  "$python" -m venv --without-pip "$place"
  "$python" -c "$ENVIRONMENT" layer "$place" "$(dirname "$(command -v "$python")")" "$index"
  (
    export PIP_CONSTRAINT="$place/constraints.txt" PIP_CACHE_DIR="${PIP_CACHE_DIR:-$trn/pip_cache}"
    export PIP_NO_INPUT=1 PIP_PROGRESS_BAR=off PIP_DISABLE_PIP_VERSION_CHECK=1
    # shellcheck disable=SC1091 # made here
    . "$place/bin/activate"
    "$place/bin/python3" -m pip install "$@"
    steps
  )
  megabytes=$(du -sm "$place" | cut -f 1)
  "$place/bin/python3" -c "$ENVIRONMENT" record "$place" "$name" "$kind" "$base" "$megabytes" "$((SECONDS - began))" "$@"
  ln -s "${place##*/}" "$place.link"
  mv -T "$place.link" "$trn/environments/$name"
  say "environment $name is ready: $megabytes MB in $((SECONDS - began)) s"
}
