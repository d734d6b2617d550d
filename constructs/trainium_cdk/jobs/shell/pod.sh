# shellcheck shell=bash
# Sourced by node.sh in every container of a job on Kubernetes, which has set: stage, trn (the shared directory of trn), job
# (the job's directory there) and files (where the job's files are mounted).
set -euo pipefail
: "${stage:?}" "${trn:?}" "${job:?}" "${files:?}"
readonly REFUSED=64 NOT_COMPILED=65 FAILED=66 OUT_OF_MEMORY=137
# how long a program that is told to end may take to save its state: less than a pod's time for that, and than that of `timeout`
readonly SAVING_SECONDS=50

say() { printf 'trn: %s\n' "$*"; }

# For a permanent failure: the job ends, and is not restarted.
die() {
  say "$*" >&2
  exit "$REFUSED"
}

# How often the kernel has killed a program of this container because its memory was full.
memory_kills() {
  local name value count=0
  while read -r name value; do
    if [ "$name" = oom_kill ]; then count=$value; fi
  done 2> /dev/null < /sys/fs/cgroup/memory.events || true
  printf '%s\n' "$count"
}

# to_kubernetes CODE: the exit code for Kubernetes, of which one means that the memory was full: such a job is not started again.
# A node on which the kernel kills all of a container's programs at once ends with the same one.
to_kubernetes() {
  if [ "$(memory_kills)" -gt "${kills:-0}" ]; then
    say "a program was killed, because the memory of this pod was full" >&2
    printf 'out of memory\n' > /dev/termination-log
    return "$OUT_OF_MEMORY"
  fi
  if [ "$1" -eq "$OUT_OF_MEMORY" ]; then return 1; fi
  return "$1"
}

begin() {
  local ranks=''
  umask 022
  kills=$(memory_kills)
  if [ "$stage" != prepare ]; then ranks=" node $NODE_RANK of $NNODES, $(ranks),"; fi
  mkdir -p "$job/logs" "$job/state" "$job/work" "$HOME"
  if [ -n "${TRN_ARRAY_INDEX:-}" ]; then share; fi
  say "$stage:$ranks on ${TRN_NODE:-an unknown node}, attempt ${TRN_ATTEMPT:-0}, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
}

# What `prepare` has fetched once for all members of an array.
share() {
  local name
  for name in code environment; do
    if [ -e "${job%/*}/$name" ]; then ln -sfn "../$name" "$job/$name"; fi
  done
}

# Ranks are fixed: process L of node N has rank N x processes + L. `trn logs --rank` reads this line.
ranks() { printf 'ranks %s to %s' "$((NODE_RANK * NPROC_PER_NODE))" "$(((NODE_RANK + 1) * NPROC_PER_NODE - 1))"; }

# logged COMMAND...: run it with its output here and in the job's directory, where it is kept after the pod.
logged() {
  local writer main code=0 left=$SAVING_SECONDS
  exec 3> >(
    trap '' TERM # it ends after all whose output it writes
    exec tee -a "$job/logs/$stage.${NODE_RANK:-0}.log"
  )
  writer=$!
  (
    set -e
    "$@"
  ) >&3 2>&1 &
  main=$!
  exec 3>&-
  # the first process of a container has no default signal handlers
  trap 'told=1; trap "" TERM; kill 0' TERM
  wait "$main" || code=$?
  if [ -z "${told:-}" ]; then
    wait "$writer" || true
  else # the container ends with this script, and with it all programs
    while kill -0 "$writer" 2> /dev/null && ((left-- > 0)); do sleep 1; done
  fi
  return "$code"
}

# A file's content on a shared file system, or nothing.
content() { cat "$1" 2> /dev/null || true; }

# Wait until every node has compiled in this attempt: a node that trains earlier would wait with all its devices in use.
compiled_everywhere() {
  local node
  for ((node = 0; node < NNODES; node++)); do
    until [ "$(content "$job/state/compiled.$node")" = "${TRN_ATTEMPT:-0}" ]; do sleep 2; done
  done
}

# A Job's policy cannot tell why an init container failed. So a failure to compile is recorded, and reported by the
# training container's exit code, at which the job ends.
precompile() {
  local code=0 log=$job/logs/precompile.$NODE_RANK.log start=0
  if [ -e "$log" ]; then start=$(stat -c %s "$log"); fi
  rm -f "$job/state/compiled.$NODE_RANK"
  set +e # not `|| code=$?`: that would disable it in all called functions
  logged launch
  code=$?
  set -e
  if [ "$code" -eq 0 ] && tail -c +"$((start + 1))" "$log" | grep -aE 'Total failed compilations: [1-9]' > /dev/null; then
    say "graphs failed to compile: see above, or submit without precompiling" >&2
    code=$NOT_COMPILED
  fi
  printf '%s\n' "$code" > /run/trn/compiled
  printf '%s\n' "${TRN_ATTEMPT:-0}" > "$job/state/compiled.$NODE_RANK.part"
  if [ "$code" -eq 0 ]; then mv "$job/state/compiled.$NODE_RANK.part" "$job/state/compiled.$NODE_RANK"; fi
}

train() {
  if [ -e /run/trn/compiled ]; then
    if [ "$(cat /run/trn/compiled)" != 0 ]; then
      say "precompile ended with exit code $(cat /run/trn/compiled): training does not start" >&2
      exit "$NOT_COMPILED"
    fi
    compiled_everywhere
  fi
  # JobSet cannot distinguish a script's failure from a lost node: unless the container was told to end, a script's failure
  # has one exit code, and the script's own code is in the termination message
  local code=0
  told=''
  set +e
  logged launch
  code=$?
  set -e
  if [ "$code" -ne 0 ] && [ -z "$told" ] && [ -n "${fails_once:-}" ]; then
    printf 'exit code %s\n' "$code" > /dev/termination-log
    code=$FAILED
  fi
  if [ "$code" -ne 0 ]; then to_kubernetes "$code"; fi
}

# tasks COUNT: start that many copies of `run`, each with its rank. As soon as one fails, all end.
tasks() {
  local i pids=() code=0
  for ((i = 0; i < $1; i++)); do
    (
      export RANK=$((NODE_RANK * $1 + i)) LOCAL_RANK=$i WORLD_SIZE=$((NNODES * $1))
      run
    ) &
    pids+=($!)
  done
  for ((i = 0; i < $1; i++)); do
    wait -n || code=$?
    if [ "$code" -ne 0 ]; then
      kill "${pids[@]}" 2> /dev/null || true
      return "$code"
    fi
  done
}

# each worker holds many connections at once ("Failed accept4: Too many open files")
open_files() {
  local most
  most=$(ulimit -Sn)
  if [ "$most" != unlimited ] && [ "$most" -lt 65535 ] && ! ulimit -n 65535 2> /dev/null; then
    say "at most $most files may be open here; large jobs need 65535"
  fi
}

# Fetches what is missing, with the image's own tools.
prepare() {
  local code=0
  bash "$files/prepare.sh" check || code=$?
  case $code in
    0) say "everything is already fetched" ;;
    4) exit "$REFUSED" ;; # it cannot run with what is on the cluster, as reported
    3)
      for tool in ${tools-aws git}; do
        if ! command -v "$tool" > /dev/null; then
          die "the image has no $tool, which fetches code and data. Build one that has it, as the examples do: trn image build torchneuron, or bert-large for torch-xla"
        fi
      done
      code=0
      logged bash "$files/prepare.sh" fetch || code=$?
      if [ "$code" -eq 4 ]; then code=$REFUSED; fi
      if [ "$code" -ne 0 ]; then to_kubernetes "$code"; fi
      ;;
    *) die "prepare.sh failed while it checked what is already fetched" ;;
  esac
}
