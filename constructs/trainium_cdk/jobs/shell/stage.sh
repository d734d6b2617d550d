# shellcheck shell=bash
# Sourced by the batch script of each stage, which has set: job (the job's directory), stage (this stage's name), and restarts
# (maximum restarts) if limited. Of a member of an array, job is its own directory, and root the array's.
set -euo pipefail
: "${job:?}" "${stage:?}" "${root:=$job}"
slurm_number=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID} # as sbatch printed it

say() { printf 'trn: %s\n' "$*"; }

# Unlike sleep alone, ends at a signal.
pause() {
  sleep "$1" &
  wait "$!" || true
}

# Whether a command succeeds within so many seconds. NFS shows within a minute what others wrote.
within() { # seconds, command...
  local tries=$1
  shift
  until "$@"; do
    if ((--tries <= 0)); then return 1; fi
    pause 1
  done
}

# Record the stage's state in the job's directory: without accounting, Slurm forgets finished jobs after some minutes.
record() {
  printf '%s\n' "$*" > "$job/state/$stage.part"
  mv "$job/state/$stage.part" "$job/state/$stage"
}

stopped='' leaving='' finished=''

ended() {
  leaving=$?
  local code=$leaving why
  # at a signal without a trap, the exit code here is that of the command before
  if [ "$code" -eq 0 ] && [ -z "$finished" ]; then code=143; fi
  if [ "$code" -gt 128 ] && [ -z "$stopped" ] && [ ! -s "$job/state/$stage.failed" ]; then
    # a stop of the stage may reach srun first
    pause 5
  fi
  why=$stopped
  if [ "$code" -ne 0 ] && [ -z "$why" ] && [ -s "$job/state/$stage.failed" ]; then
    read -r code why < "$job/state/$stage.failed"
  fi
  record ended "$slurm_number" "$code" "$(date +%s)" "$SLURM_JOB_NODELIST" "$why" || true # the exit code stands
}

# Why the stage was stopped; Slurm knows, as long as it remembers the job.
stopped() {
  if [ -z "$leaving" ] && [ -n "${SLURMD_NODENAME:-}" ] && ! answering "$SLURMD_NODENAME"; then wait_for_slurm; fi
  stopped=CANCELLED
  case $(squeue -h -a -t all -j "$SLURM_JOB_ID" -o '%j %r' 2>&1) in
    "$SLURM_JOB_NAME TimeLimit") stopped=TIMEOUT ;;
    "$SLURM_JOB_NAME "*) ;;
    *'Invalid job id'*) stopped=LOST ;; # the controller crashed before it had saved this job
    *error*) ;;
    *) stopped=LOST ;; # and has given its number to another one
  esac
  if [ -z "$leaving" ]; then exit 143; fi
}

# The size of the nodes' logs before this attempt: older content is of earlier attempts.
declare -A sizes=()

# Only Slurm jobs that the submission has recorded run. Others are left by an interrupted submission.
belongs() {
  local tries
  for ((tries = 60; tries > 0; tries--)); do
    : "$root"/* # NFS remembers for half a minute that a file was not there; listing its directory makes it look again
    if grep -qsx "$stage $slurm_number" "$root/stages"; then return 0; fi
    if [ -s "$root/stages" ] && [ "$tries" -gt 3 ]; then tries=3; fi
    sleep 1
  done
  say "Slurm job $SLURM_JOB_ID is not a stage of this job: its submission was interrupted. Nothing was run" >&2
  return 1
}

begin() {
  local log name how='' recorded='' code=''
  belongs || exit 1
  chmod 700 "$root/script"/* 2> /dev/null || true # those that are programs are started as such
  if [ "$root" != "$job" ]; then
    ln -sfn ../script "$job/script"
    for name in code environment; do
      if [ -e "$root/$name" ]; then ln -sfn "../$name" "$job/$name"; fi
    done
  fi
  if [ -f "$job/state/$stage" ]; then read -r how recorded code _ < "$job/state/$stage" || true; fi
  if [ "$how $recorded $code" = "ended $slurm_number 0" ]; then
    say "$stage has already completed; Slurm's controller crashed and forgot that"
    exit 0
  fi
  record running "$slurm_number" 0 "$(date +%s)" "$SLURM_JOB_NODELIST"
  rm -f "$job/state/$stage.failed" "$job/state/$stage.begun" "$job/state/$stage.task."*
  trap ended EXIT
  trap stopped TERM
  if [ -e "$job/cancelled" ] || [ -e "$root/cancelled" ]; then
    say "this job was cancelled; Slurm's controller crashed and forgot that" >&2
    scancel --name="$SLURM_JOB_NAME" "$SLURM_JOB_ID" || exit 143
    pause 900
  fi
  for log in "$job/logs/$stage".*.log; do
    if [ -e "$log" ]; then sizes[$log]=$(stat -c %s "$log"); fi
  done
  say "$stage: Slurm job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, $(date -u +%Y-%m-%dT%H:%M:%SZ)"
  if [ -n "${restarts:-}" ] && [ "${SLURM_RESTART_COUNT:-0}" -gt "$restarts" ]; then
    say "restarted $restarts times already, the most that --restarts allows" >&2
    exit 1
  fi
}

# The value of a field in scontrol's line of a node.
node_field() { sed -n "s/.* $1=\([^ ]*\).*/\1/p"; }

# Slurm's line about a node. A controller that is being restarted does not answer: wait for it, for at most 10 minutes.
node_line() {
  local line until=$((SECONDS + 600))
  while ! line=$(scontrol show node "$1" --oneliner 2>&1); do
    say "Slurm's controller does not answer: ${line:0:300}" >&2
    if [ "$SECONDS" -ge "$until" ]; then return 1; fi
    sleep 2
  done
  printf '%s\n' "$line"
}

# MASTER_ADDR by address: node names need not resolve before every node has booted.
rendezvous() {
  local first line
  read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  line=$(node_line "$first")
  MASTER_ADDR=$(node_field NodeAddr <<< "$line")
  : "${MASTER_ADDR:=$first}"
  NNODES=$SLURM_JOB_NUM_NODES
  export MASTER_ADDR NNODES
}

# Whether the Slurm daemons of these nodes respond. If not, the machine is about to stop.
answering() {
  local line usual address port
  usual=$(scontrol show config | sed -n 's/^SlurmdPort *= *//p') || return 0
  while read -r line; do
    address=$(node_field NodeAddr <<< "$line")
    port=$(node_field Port <<< "$line") # printed only if it is not the default
    # shellcheck disable=SC2016 # its own parameters
    timeout 10 bash -c ': < "/dev/tcp/$1/$2"' connect "$address" "${port:-$usual}" 2> /dev/null || return 1
  done < <(scontrol show node "$1" --oneliner)
}

# Whether srun may be tried again: it failed before any task began, as it does if Slurm's controller crashes meanwhile, and the
# controller knows this allocation. One that has forgotten it starts the stage again, and ends this script.
may_start_again() {
  local begun=$job/state/$stage.begun
  if [ -e "$begun" ] || ! answering "$SLURM_JOB_NODELIST" || within 60 test -e "$begun"; then return 1; fi
  node_line "$SLURMD_NODENAME" > /dev/null || return 1
  say "no task of $stage began: waiting until Slurm's controller knows this allocation" >&2
  if within 120 allocated; then return 0; fi
  stopped=LOST
  return 1
}

# Whether this script's allocation is as Slurm's controller knows it.
allocated() {
  [ "$(squeue -h -a -t all -j "$SLURM_JOB_ID" -o '%j %T %N' 2>&1)" = "$SLURM_JOB_NAME RUNNING $SLURM_JOB_NODELIST" ]
}

# A machine that shuts down (a spot interruption) ends its processes before Slurm knows. When it does, Slurm ends this script and
# restarts the stage; a script that fails before that would not be restarted.
wait_for_slurm() {
  say "a node is shutting down: waiting for Slurm to restart $stage" >&2
  pause 900
}

# srun, until each of so many tasks has recorded that it succeeded: srun may return 0 although their node has failed.
tasks() { # number, srun's arguments...
  local number=$1 code starts=3
  shift
  while :; do
    code=0
    srun "$@" || code=$?
    if [ "$code" -eq 0 ] || [ "$code" -gt 128 ] || ((--starts == 0)) || ! may_start_again; then break; fi
  done
  if [ "$code" -eq 0 ] && ! within 60 recorded "$number"; then
    say "only $(succeeded) of $number tasks have recorded in $job/state that they succeeded, though srun reports no error: a node has failed, or could not write there" >&2
    code=1
  fi
  return "$code"
}

# The number of tasks that have recorded that they succeeded.
succeeded() { find "$job/state" -name "$stage.task.*" | wc -l; }
recorded() { [ "$(succeeded)" -ge "$1" ]; }

# Why the stage failed: srun, which ends the other tasks, may drop the last lines of the one that failed first.
show_failure() {
  local node log last
  if [ ! -s "$job/state/$stage.failed" ]; then return 0; fi
  read -r _ node < "$job/state/$stage.failed"
  log=$job/logs/$stage.$node.log
  say "node $node failed first; its own log is $log"
  last=$(tail -n 9 "$log" | sed '/^ *$/d' | tail -n 1) || return 0
  if ! tail -n 100 "$job/logs/$stage.log" | grep -qsF -- "$last"; then
    tail -c +"$((${sizes[$log]:-0} + 1))" "$log" | tail -n 40 | sed "s/^/$node: /" || true
  fi
}

# Once on each node; the whole stage ends as soon as one node fails.
launch() {
  local code=0 number=$((SLURM_JOB_NUM_NODES * SLURM_NTASKS_PER_NODE))
  tasks "$number" --label --kill-on-bad-exit=1 bash "$root/node.sh" "$job" "$stage" || code=$?
  if [ "$code" -ne 0 ] && [ "$number" -gt 1 ]; then show_failure; fi
  if [ "$code" -ne 0 ] && ! answering "$SLURM_JOB_NODELIST"; then wait_for_slurm; fi
  return "$code"
}

# A failed graph would be compiled again, and fail again, during training.
check_compiled() {
  local failed=0 log
  for log in "$job/logs/$stage".*.log; do
    if tail -c +"$((${sizes[$log]:-0} + 1))" "$log" | grep -aE 'Total failed compilations: [1-9]' > /dev/null; then
      failed=$((failed + 1))
    fi
  done
  if [ "$failed" -gt 0 ]; then
    say "graphs failed to compile on $failed node(s): see $job/logs/$stage.*.log, or submit without precompiling" >&2
    exit 1
  fi
}

# Each node has its own compile cache, so training must get the nodes that compiled.
keep_nodes() {
  local next answer
  next=$(sed -n 's/^train //p' "$job/stages")
  if ! answer=$(scontrol update JobId="$next" ReqNodeList="$SLURM_JOB_NODELIST" 2>&1); then
    say "training may get other nodes, and compile there again: $answer"
  fi
}

# Report if training runs on nodes that have not compiled (for example after a manual replacement).
compare_nodes() {
  local compiled
  [ -f "$job/state/precompile" ] || return 0
  read -r _ _ _ _ compiled < "$job/state/precompile"
  if [ "$compiled" != "$SLURM_JOB_NODELIST" ]; then
    say "compiled on $compiled: other nodes compile at their first steps"
  fi
}
