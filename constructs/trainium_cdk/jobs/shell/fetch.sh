# shellcheck shell=bash
# Fetching code, data and packages once for all jobs. Sourced by prepare.sh, which has set: job, trn (the shared
# directory of trn), python (the interpreter with the packages of the cluster or the image), and mode (`fetch`; or `check`, which
# ends with code 3 if something must be fetched). Code 4: the job cannot run with what is on the cluster.
# After an interruption, everything resumes.
set -euo pipefail
: "${job:?}" "${trn:?}" "${python:?}" "${mode:?}" "${UNPACK:?}"

export PART_BYTES=${TRN_PART_BYTES:-268435456}
readonly STREAMS=8

say() { printf 'trn: %s\n' "$*"; }
die() {
  printf 'trn: %s\n' "$*" >&2
  exit 1
}

# once NAME TARGET COMMAND...: run the command unless it was done and its target is still there; one job at a time.
once() {
  local marker="$trn/done/$1" target=$2
  shift 2
  if [ -e "$marker" ] && [ -e "$target" ]; then return 0; fi
  if [ "$mode" = check ]; then exit 3; fi
  mkdir -p "$trn/done" "$(dirname "$target")"
  (
    flock 9
    if [ ! -e "$marker" ] || [ ! -e "$target" ]; then
      "$@"
      : > "$marker"
    fi
  ) 9> "$marker.lock"
}

# source_tree NAME URL REF
source_tree() {
  once "src-$1-$3" "$trn/src/$1-$3" clone "$2" "$3" "$trn/src/$1-$3"
}

clone() {
  local url=$1 ref=$2 dir=$3
  say "fetching $url at $ref"
  rm -rf "$dir" "$dir.part"
  git init -q "$dir.part"
  git -C "$dir.part" fetch -q --depth 1 "$url" "$ref"
  git -C "$dir.part" checkout -q --detach FETCH_HEAD
  mv "$dir.part" "$dir"
}

# data_archive NAME URI SIGNING [SHA256]: a .tar in S3, unpacked. SIGNING is `--no-sign-request` for public buckets, else empty.
data_archive() {
  once "data-$1" "$trn/data/$1" unpack "$2" "$trn/data/$1" "$3" "$(known "${4:-}")"
}

unpack() {
  local uri=$1 dir=$2 signing=$3
  get_parts "$uri" "$dir" "$signing"
  verify "$uri" "$4"
  rm -rf "$dir"
  unpack_parts "$uri" "$dir.part"
  mv "$dir.part" "$dir"
  rm -rf "$parts"
}

# unpack_parts URI FOLDER: unpack the archive in $parts, of $size bytes, into FOLDER, whose old content is deleted.
unpack_parts() {
  say "unpacking $1: $size bytes"
  cat "$parts"/*[0-9] | python3 -c "$UNPACK" unpack "$2" "$size"
}

# data_file NAME URI SIGNING [SHA256]: one object of S3 in the directory of that name.
data_file() {
  local file="$trn/data/$1/${2##*/}"
  once "data-$1-${2##*/}" "$file" join_parts "$2" "$file" "$3" "$(known "${4:-}")"
}

join_parts() {
  local uri=$1 file=$2 signing=$3
  get_parts "$uri" "$file" "$signing"
  verify "$uri" "$4"
  cat "$parts"/*[0-9] > "$file.part"
  mv "$file.part" "$file"
  rm -rf "$parts"
}

# data_prefix NAME URI: everything below a prefix of S3.
data_prefix() {
  once "data-$1" "$trn/data/$1" sync_prefix "$2" "$trn/data/$1"
}

sync_prefix() {
  say "fetching $1"
  mkdir -p "$2.part"
  aws s3 sync --only-show-errors --delete "${1%/}/" "$2.part/"
  if [ -z "$(ls -A "$2.part")" ]; then die "there is nothing at $1. Check the bucket and the prefix"; fi
  rm -rf "$2"
  mv "$2.part" "$2"
}

# get_parts URI TARGET SIGNING: download an object of $size bytes in parts, several at a time, into the directory $parts.
get_parts() {
  local uri=$1 target=$2 signing=$3 bucket key head etag last attempt
  bucket=${uri#s3://}
  key=${bucket#*/}
  bucket=${bucket%%/*}
  head=$(aws s3api head-object --bucket "$bucket" --key "$key" ${signing:+"$signing"} \
    --query '[ContentLength, ETag]' --output text) || die "cannot read $uri. Check that it exists and may be read from here"
  read -r size etag <<< "$head"
  parts=$target.parts-$(tr -cd 'a-zA-Z0-9-' <<< "$etag")
  own_folder "$parts"
  room "$uri" "$((size - $(du -sb "$parts" | cut -f 1)))" "$parts"
  last=$(((size > 0 ? size - 1 : 0) / PART_BYTES))
  say "fetching $uri: $size bytes in $((last + 1)) parts"
  for attempt in 1 2 3 4 5; do
    if seq 0 "$last" | xargs -P "$STREAMS" -I '{}' \
      bash -c 'get_part "$@"' get_part "$bucket" "$key" "$etag" "$size" "$parts" "$signing" '{}'; then
      return 0
    fi
    say "some parts of $uri did not arrive (attempt $attempt of 5)"
    sleep "$((attempt * ${TRN_RETRY_SECONDS:-10}))"
  done
  die "$uri could not be fetched; the parts that arrived are kept: submit the job again to resume"
}

# known SHA256: the checksum, unless the nodes accept any content of the public data sets (TRN_UNVERIFIED_DATA).
known() {
  if [ -z "${TRN_UNVERIFIED_DATA:-}" ]; then printf '%s' "$1"; fi
}

# verify URI SHA256: the job fails if the object in $parts has another checksum, and the parts are deleted. Empty: not compared.
verify() {
  local sum
  if [ -z "$2" ]; then return 0; fi
  sum=$(cat "$parts"/*[0-9] | sha256sum | cut -d ' ' -f 1)
  if [ "$sum" = "$2" ]; then
    say "SHA-256 of $1 verified"
    return 0
  fi
  rm -rf "$parts"
  printf 'trn: %s\n' "$1 has the SHA-256 $sum, and not $2: it was replaced or damaged. It was deleted. Use another copy" >&2
  exit 4
}

# own_folder FOLDER: create it if it does not exist; a link in its place is an error, as it would lead elsewhere.
own_folder() {
  if [ -L "$1" ]; then die "$1 is a link. Remove it"; fi
  mkdir -p "$1"
}

# room URI BYTES FOLDER: end if the file system has not that much space.
room() {
  local free
  free=$(df --output=avail -B1 "$3" | tail -n 1 | tr -d ' ')
  if [ "$2" -gt "$free" ]; then die "$1 needs $2 bytes more, and $free bytes are free. Free space, or choose another directory"; fi
}

get_part() {
  set -euo pipefail
  local bucket=$1 key=$2 etag=$3 size=$4 signing=$6 number=$7 file first end
  file=$5/$(printf '%06d' "$number")
  if [ -e "$file" ]; then return 0; fi
  if [ "$size" -eq 0 ]; then
    : > "$file"
    return 0
  fi
  first=$((number * PART_BYTES))
  end=$((first + PART_BYTES < size ? first + PART_BYTES - 1 : size - 1))
  aws s3api get-object --bucket "$bucket" --key "$key" --range "bytes=$first-$end" --if-match "$etag" \
    ${signing:+"$signing"} "$file.part" > /dev/null
  [ "$(stat -c %s "$file.part")" -eq "$((end - first + 1))" ]
  mv "$file.part" "$file"
  printf 'trn: part %s of %s\n' "$(find "$5" -type f -name '*[0-9]' | wc -l)" "$(((size - 1) / PART_BYTES + 1))"
}
export -f get_part

# hugging_face MODEL FILE...: files of a model on Hugging Face, into the cache $trn/hf_cache that all nodes read.
hugging_face() {
  once "hf-${1//\//--}-$(cksum <<< "$*" | cut -d ' ' -f 1)" "$trn/hf_cache/hub/models--${1//\//--}" download_model "$@"
}

download_model() {
  local commit=main there="$trn/hf_cache/hub/models--${1//\//--}/refs/main"
  # files that come later are of the same commit as those that are there: each commit has a folder of its own
  if [ -s "$there" ]; then commit=$(cat "$there"); fi
  say "fetching $1 from Hugging Face: ${*:2}"
  HF_HOME=$trn/hf_cache "$python" -c 'import sys, huggingface_hub as hub
commit, model, *files = sys.argv[1:]
hub.snapshot_download(model, revision=commit, allow_patterns=files)' "$commit" "$@" > /dev/null
}

# hugging_face_data DATASET [CONFIGURATION]: the part `train` of a data set on Hugging Face, or of the files in a directory, into the
# same cache.
hugging_face_data() {
  once "hf-data-$(tr / - <<< "$*" | tr ' ' _ | tail -c 100)-$(cksum <<< "$*" | cut -d ' ' -f 1)" "$trn/hf_cache/datasets" read_dataset "$@"
}

read_dataset() {
  say "reading the data set $*"
  HF_HOME=$trn/hf_cache "$python" -c 'import sys, datasets
datasets.load_dataset(*sys.argv[1:], split="train")' "$@" > /dev/null
}

# has_modules FIX MODULE...: reject the job if the environment lacks a Python module.
has_modules() {
  local fix=$1 absent
  shift
  absent=$("$python" -c 'import importlib.util as i, sys
print(*[m for m in sys.argv[1:] if i.find_spec(m) is None])' "$@")
  if [ -n "$absent" ]; then
    printf 'trn: %s\n' "the environment of the workers has no $absent. $fix" >&2
    exit 4
  fi
}

# enough_files DIRECTORY PATTERN COUNT FIX: reject the job if a data set, with the folders right below it, has fewer files.
enough_files() {
  local count
  if [ ! -d "$1" ]; then return 0; fi # not visible from here
  count=$(find "$1" -maxdepth 2 -name "$2" | wc -l)
  if [ "$count" -lt "$3" ]; then
    printf 'trn: %s\n' "$1 has $count files $2, and the job needs $3. $4" >&2
    exit 4
  fi
}
