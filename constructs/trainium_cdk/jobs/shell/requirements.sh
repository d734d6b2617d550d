# shellcheck shell=bash
# The packages of a user's requirements file. Part of prepare.sh, after fetch.sh and environments.sh; it has also set: REQUIREMENTS
# (requirements.py).
: "${job:?}" "${trn:?}" "${python:?}" "${mode:?}" "${REQUIREMENTS:?}"

# requirements FILE LABEL VARIABLE...: make the environment of a file in the job's directory, or find it. The file is named by its
# content. The variables are those that pip replaces in it: their values are not shown.
requirements() {
  requirements_file=$1 requirements_label=$2
  shift 2
  # local paths in the file begin here
  cd "$job" || exit
  if command -v "$python" > /dev/null; then
    "$python" -c "$REQUIREMENTS" protected > protected.part
    mv protected.part protected.txt
  fi
  if [ "$mode" = fetch ]; then
    exec {requirements_out}>&1 {requirements_err}>&2
    exec > >("$python" -c "$REQUIREMENTS" relay requirements.said "$@") 2>&1
    requirements_relay=$!
    trap requirements_ended EXIT
  fi
  environment script -r "$requirements_file" -c protected.txt
  if [ "$mode" = fetch ]; then
    trap - EXIT
    requirements_said
    rm -f requirements.said
  fi
  cd "$OLDPWD" || exit
}

# After pip, in the environment. (What this does is part of the environment's name.)
# shellcheck disable=SC2154 # place is of make_environment
steps() { "$place/bin/python3" -c "$REQUIREMENTS" finish "$place" "$job/protected.txt" "$job/$requirements_file"; }

# Wait until all that was said is written.
requirements_said() {
  exec >&"$requirements_out" 2>&"$requirements_err" {requirements_out}>&- {requirements_err}>&-
  wait "$requirements_relay" || true
}

requirements_ended() {
  local code=$?
  trap - EXIT
  requirements_said
  if [ "$code" -eq 1 ]; then
    "$python" -c "$REQUIREMENTS" explain "$job/protected.txt" "$job/requirements.said" "$requirements_label" >&2 || true
  fi
  rm -f "$job/requirements.said"
  exit "$code"
}
