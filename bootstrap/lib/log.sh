# shellcheck shell=bash
# Log, lock, step runner, recorded failures and changes, retries.

LOG_OPEN=no
WORK="" # temporary folder of this run, removed at its end
ENDED=no # whether this run's failure has been reported
LIB_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
readonly LIB_DIR

# From here on the output of all commands goes to the log file only; file descriptors 3 and 4 are the caller's
# stdout and stderr, used for a few lines of our own.
log_open() {
  trap 'ended "$?" "${BASH_COMMAND}"' EXIT
  mkdir -p "$(dirname "${TRN_LOG}")" "${TRN_STATE_DIR}"
  touch "${TRN_LOG}"
  chmod 0644 "${TRN_LOG}"
  exec 3>&1 4>&2 >>"${TRN_LOG}" 2>&1
  LOG_OPEN=yes
}

log() { printf '%s trn-bootstrap[%s] %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "${TRN_NODE_ROLE:-?}" "$*"; }

# One line to the log and to the caller.
announce() {
  log "$*"
  log "$*" >&3
}

# report TEXT: prints why a run fails, on every channel that is kept. ParallelCluster drops the stderr of a head node's
# script and keeps its stdout on the node; for a compute node it keeps stderr. The system log of both is in the cluster's
# CloudWatch logs, also after the node is terminated. Works before log_open as well.
report() {
  if [[ ${LOG_OPEN} == yes ]]; then
    printf '%s\n' "$1" >&3
    printf '%s\n' "$1" >&4
  else
    printf '%s\n' "$1"
    printf '%s\n' "$1" >&2
  fi
  system_log "$1"
}

system_log() { logger -t trn-bootstrap -p user.err -- "$1" 2>/dev/null || true; }

take_lock() {
  exec 9>"${TRN_STATE_DIR}/lock"
  if ! flock -n 9; then
    announce "another run is under way, waiting up to ${TRN_LOCK_WAIT} s"
    if ! flock -w "${TRN_LOCK_WAIT}" 9; then
      report "trn-bootstrap: another run still holds ${TRN_STATE_DIR}/lock after ${TRN_LOCK_WAIT} s; see 'ps' and ${TRN_LOG}"
      end_failed 1
    fi
  fi
}

begin_run() {
  WORK="$(mktemp -d "${TMPDIR:-/tmp}/trn-bootstrap.XXXXXX")"
  : >"${WORK}/steps"
  : >"${WORK}/changes"
  : >"${WORK}/failure"
  RUN_ARGUMENTS="$*"
  RUN_STARTED="$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  announce "start: role ${TRN_NODE_ROLE}, Neuron SDK ${TRN_NEURON_SDK:-from the image}, kernel $(uname -r)"
  write_status running "" ""
}

write_status() {
  RESULT="$1" FAILED_STEP="$2" MESSAGE="$3" STARTED="${RUN_STARTED}" ARGUMENTS="${RUN_ARGUMENTS}" \
    ROLE="${TRN_NODE_ROLE}" SDK="${TRN_NEURON_SDK}" LOG="${TRN_LOG}" \
    python3 -I "${LIB_DIR}/write_status.py" "${WORK}" "${TRN_STATE_DIR}/status.json"
}

# ended STATUS COMMAND: the end of every run. A failure outside of a step, as of a full disk, is reported here.
ended() {
  set +e
  [[ -z ${WORK} ]] || rm -rf "${WORK}"
  if (($1 != 0)) && [[ ${ENDED} == no ]]; then
    report "trn-bootstrap: command '$2' failed with status $1 on ${TRN_NODE_ROLE} node $(uname -n).$(full_disks) Full log: ${TRN_LOG}"
    end_failed "$1"
  fi
}

# Prints which file systems are full, and what to do; nothing where none is.
full_disks() {
  local full
  full="$(
    df --output=avail,target / /var "${TMPDIR:-/tmp}" "${TRN_LOG%/*}" "${TRN_STATE_DIR}" 2>/dev/null |
      awk 'NR > 1 && $1 < 1024 { print $2 }' | sort -u | paste -sd ' '
  )" || true
  [[ -z ${full} ]] || printf ' No space is left on %s: free some there, or give the node a larger root volume.' "${full}"
}

finish_run() {
  write_status ok "" ""
  announce "done in ${SECONDS} s, $(wc -l <"${WORK}/changes") change(s)"
}

# Ends the step: what is wrong (with the value), then the fix.
die() {
  local full
  full="$(full_disks)" # then that is the fix
  [[ -s ${WORK}/failure ]] || printf '%s.%s\n' "${1%.}" "${full:- ${2:-}}" >"${WORK}/failure"
  exit 1
}

on_error() {
  [[ -s ${WORK}/failure ]] ||
    printf "command '%s' ended with status %s (%s).%s\n" "$2" "$1" "$3" "$(full_disks)" >"${WORK}/failure"
  exit "$1"
}

changed() {
  printf '%s\n' "$*" >>"${WORK}/changes"
  log "changed: $*"
}

# Runs step_NAME in a subshell, so that 'set -e' holds inside it and its failure can be reported. The caller's
# descriptors are closed there: a service that a package starts would keep them open and the caller would hang.
run_step() {
  local name="$1" started="${SECONDS}" status message first context line
  announce "step ${name}: start"
  first=$(($(wc -l <"${TRN_LOG}") + 1))
  set +e
  (
    set -Eeuo pipefail
    trap 'on_error "$?" "${BASH_COMMAND}" "${BASH_SOURCE[0]##*/}:${LINENO}"' ERR
    "step_${name//-/_}"
  ) </dev/null 3>&- 4>&- 9>&-
  status=$?
  set -e
  if ((status == 0)); then
    printf '%s\tok\t%s\n' "${name}" $((SECONDS - started)) >>"${WORK}/steps"
    announce "step ${name}: done ($((SECONDS - started)) s)"
    return
  fi
  message="$(<"${WORK}/failure")"
  # on a full disk none of these can be written: the reason is reported all the same
  printf '%s\tfailed\t%s\n' "${name}" $((SECONDS - started)) >>"${WORK}/steps" || true
  write_status failed "${name}" "${message}" || true
  announce "step ${name}: FAILED" || true
  context="$(
    printf -- '--- the last 20 lines of step %s ---\n' "${name}"
    tail -n "+${first}" "${TRN_LOG}" | sed "/trn-bootstrap\[.*step ${name}: FAILED/d" | tail -n 20
    printf -- '---'
  )"
  printf '%s\n' "${context}" >&3
  while IFS= read -r line; do system_log "${line}"; done <<<"${context}"
  report "$(
    printf "trn-bootstrap: step '%s' failed on %s node %s: %s\nFull log: %s   Status: %s" \
      "${name}" "${TRN_NODE_ROLE}" "$(uname -n)" "${message:-the step ended with status ${status}.$(full_disks)}" \
      "${TRN_LOG}" "${TRN_STATE_DIR}/status.json"
  )"
  end_failed "${status}"
}

# end_failed STATUS: ends a run that has failed. A status that is not 0 fails an update of a cluster for good: CloudFormation cannot
# even roll it back (ParallelCluster's provider). So an update only reports, and nodes that need what is missing fail with their reason.
end_failed() {
  ENDED=yes
  if [[ ${TRN_ON_FAILURE} == report ]]; then
    report "trn-bootstrap: the cluster's update continues without it. Remove the cause and run on this node: sudo ${LIB_DIR%/lib}/configure-node.sh"
    exit 0
  fi
  exit "$1"
}

# retry WHAT COMMAND...: five attempts; the delay starts at TRN_RETRY_DELAY seconds and doubles.
retry() {
  local what="$1" attempt delay="${TRN_RETRY_DELAY}"
  shift
  for attempt in 1 2 3 4 5; do
    if "$@"; then return 0; fi
    ((attempt < 5)) || break
    log "${what}: attempt ${attempt} failed, next in ${delay} s"
    sleep "${delay}"
    delay=$((delay * 2))
  done
  log "${what}: gave up after ${attempt} attempts"
  return 1
}

# write_file PATH MODE < content: replaces the file only where it differs.
write_file() {
  local path="$1" mode="$2" staged
  staged="$(mktemp "${WORK}/file.XXXXXX")"
  cat >"${staged}"
  if [[ -f ${path} ]] && cmp -s "${staged}" "${path}" && [[ $(stat -c 0%a "${path}") == "${mode}" ]]; then
    rm -f "${staged}"
    return 0
  fi
  install -D -m "${mode}" "${staged}" "${path}"
  rm -f "${staged}"
  changed "wrote ${path}"
}

download() {
  local url="$1" target="$2"
  retry "download of ${url}" curl -fsSL --connect-timeout 15 --max-time 900 --proto '=https,http,file' --proto-redir '=https' \
    -o "${target}" "${url}" ||
    die "cannot download ${url}" "Check the node's route to the internet (NAT gateway) or set a mirror in node.env"
}
