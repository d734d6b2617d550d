#!/bin/bash
# bert-large-20261120-4f3a9c: submitted to Slurm by the job's user on the head node of trn-slurm. Running it again changes nothing.
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

id=bert-large-20261120-4f3a9c
shared="${TRN_SHARED_ROOT:-}"/efs
trn=$shared/trn
job=$trn/jobs/$id
digest=355c21cad032b775a7044a9c0c6b3d419a85527817ad65812f819dee9fd57410
cluster=i-0123456789abcdef0 # job numbers are valid only on this cluster
unset "${!SBATCH_@}" "${!SQUEUE_@}" "${!SCONTROL_@}" # the user's own defaults

die() { printf '%s\n' "$*" >&2; exit 1; }
taken() { printf '%s\n' "$id $*" >&2; exit 76; }
# Running the same script again finishes what has begun.
later() { printf '%s\n' "$*" >&2; exit 75; }

# Writes its input, which is text, to a file. It starts no process: that takes longer than all else.
write() { # file, "whole" if the last newline is not the file's
  local text=''
  IFS='' read -r -d '' text || true
  if [ "${2:-}" = whole ]; then text=${text%$'\n'}; fi
  printf '%s' "$text" > "$1"
}
if ((BASH_VERSINFO[0] > 4)); then BASH_COMPAT=5.0; fi # here-documents are files, which are read in blocks, not by character

# On a local disk of the head node, no compute node would find the job.
if [ ! -d "$shared" ] || { [ -z "${TRN_SHARED_ROOT:-}" ] && ! mountpoint -q "$shared"; }; then
  die "$shared is not mounted on this machine. Is it the head node, and its bootstrap complete?"
fi
# shellcheck shell=bash
# Part of a script that has set: trn (the directory of jobs and data). Jobs belong to one user of the cluster's machines.
: "${trn:?}"
if [[ -d $trn/jobs && ! -w $trn/jobs ]]; then
  owner=$(stat -c %U "$trn/jobs")
  printf '%s\n' "the jobs in $trn/jobs belong to $owner, and you are $(id -un). Run this as $owner (sudo -Hu $owner trn ...), or give --ssm" >&2
  exit 77
fi
# The jobs' directory belongs to the job's user, the root of a new file system to root.
if [ ! -d "$trn/jobs/.locks" ] && ! mkdir -p "$trn/jobs/.locks" 2> /dev/null; then
  sudo -n install -d -o "$(id -u)" -g "$(id -g)" "$trn" "$trn/jobs" "$trn/jobs/.locks"
fi

# One submission of an id at a time, also from two clients at once.
exec 9> "$trn/jobs/.locks/eb"
flock -w 60 9 || later "another submission of $id is still running"

resubmitted=''
report() {
  local stages='' name number
  while read -r name number; do stages+="${stages:+, }\"$name\": $number"; done < "$job/stages"
  printf 'trn-result: {"id": "%s", "existing": %s, "resubmitted": "%s", "stages": {%s}}\n' \
    "$id" "$1" "${resubmitted# }" "$stages"
}

# A Slurm controller that crashes forgets the last seconds, and gives the numbers of lost jobs to others. So a number
# proves nothing: each Slurm job is found by its name, which no other job has.
forget() { scancel --name="$id:$1" || later "Slurm does not answer"; }

# The first stage begins in some minutes, or as soon as everything is recorded, so that no stage can end before the next
# one is submitted. Unlike a held job, it begins even if Slurm forgets that it was released.
previous='' compiled='' # on these nodes, which training must get
into=stages.part # where it is recorded
submit() {
  local number options=(--begin=now+900)
  if [ -n "$previous" ]; then options=(--dependency="afterok:$previous" --kill-on-invalid-dep=yes); fi
  if [ -n "$compiled" ]; then options+=(--nodelist="$compiled"); fi
  : >> "$job/logs/$1.log" # NFS caches for half a minute that a file does not exist
  if ! { number=$(sbatch --parsable "${options[@]}" --output="$job/logs/$1.log" "$job/$1.sbatch" "$job"); } 2> "$job/sbatch.error"; then
    cat "$job/sbatch.error" >&2
    # no response is not a rejection: the submission is undone, and may be tried again
    if grep -qE '[Cc]ommunication|Connection|[Ss]ocket|timed out|Unable to contact|Zero Bytes|Message (send|receive) failure|in standby mode|Unexpected message|Insane message|Header lengths|[Tt]ransport endpoint|Broken pipe|Network (is|dropped)|Host is down|No route to host|connection abort|Resource temporarily unavailable|Interrupted system call|Operation now in progress|No buffer space available' "$job/sbatch.error"; then exit 75; fi
    # nor is it one if the controller crashed, forgot the stage before this one, and gave its number to this one
    if [ -n "$previous" ] && grep -q 'Job dependency problem' "$job/sbatch.error"; then exit 75; fi
    return 1
  fi
  previous=${number%%;*}
  printf '%s %s\n' "$1" "$previous" >> "$job/$into"
}

# Sets `rows`: what Slurm knows, a line for each of its jobs.
ask() {
  if rows=$(squeue -h -a -t all "$@" 2>&1); then return 0; fi
  if [[ $rows != *'Invalid job id'* ]]; then later "Slurm does not answer: $rows"; fi
  rows=''
}

# Sets `how` of a stage: active, completed, over (it has written that it failed or was stopped, or Slurm reports that it
# was stopped), or lost: it has written no end, and Slurm does not know it, reports that it failed, or that it cannot start
# after the stage before it.
how='' answer='' nodes='' rows=''
look() { # stage number; after `ask`
  local state='' begun='' code='' why=''
  if [[ $'\n'$rows =~ $'\n'"$2:$id:$1 "([^$'\n']*) ]]; then answer=${BASH_REMATCH[1]}; else answer=''; fi
  if [ -f "$job/state/$1" ]; then read -r state begun code _ nodes why < "$job/state/$1" || true; fi
  if [ "$begun" != "${2%_*}" ]; then state='' nodes=''; fi # of another Slurm job
  case ${answer%% *} in
    COMPLETED) how=completed ;;
    '' | FAILED | BOOT_FAIL | NODE_FAIL | OUT_OF_MEMORY)
      how=over
      if [ "$state" != ended ] || [ "$why" = LOST ]; then how=lost; fi
      ;;
    CANCELLED | DEADLINE | PREEMPTED | REVOKED | TIMEOUT)
      how=over
      if [ "${answer#* }" = DependencyNeverSatisfied ]; then how=lost; fi # the stage before it is not over
      ;;
    *) how=active ;;
  esac
  # Slurm's controller may have crashed, forgotten that, and started it again
  if [ "$how $state $code" = 'over ended 0' ]; then how=completed; fi
}

# Submit again the stages that Slurm has lost, and those after them. Then let the first waiting stage begin.
resume() {
  local stage number first='' waits='' numbers='' again=''
  while read -r _ number; do numbers+=,$number; done < "$job/stages"
  ask -j "${numbers#,}" -o '%A:%j %T %r' # of all stages at once
  previous=''
  while read -r stage number <&3; do
    if [ -z "$resubmitted" ]; then
      look "$stage" "$number"
      if [ "$how" = over ] || [ -e "$job/cancelled" ]; then break; fi
      if [ "$how $stage" = 'completed precompile' ]; then compiled=$nodes; fi
      if [ "$how" = active ]; then
        if [ -z "$first" ]; then first=$number waits=$answer; fi
        previous=$number
      fi
    fi
    if [ "$how" = lost ]; then
      if [ -z "$resubmitted" ]; then printf '%s' "$again" > "$job/stages.part"; fi
      resubmitted+=" $stage"
      forget "$stage"
      rm -f "$job/state/$stage" # it may get the same number again
      number=$previous
      submit "$stage" || later "Slurm has lost $stage of $id, and did not accept it again"
      if [ -z "$number" ]; then first=$previous waits=''; fi
    else
      again+="$stage $number"$'\n'
    fi
  done 3< "$job/stages"
  if [ -n "$resubmitted" ]; then
    mv "$job/stages.part" "$job/stages"
    rm -f "$job/released"
  fi
  if [ -n "$first" ] && { [ ! -e "$job/released" ] || [ "$waits" = 'PENDING BeginTime' ]; }; then let_begin "$first"; fi
  : > "$job/released"
}

let_begin() { # number, whose name was checked just before
  local state
  if scontrol update JobId="$1" StartTime=now; then return 0; fi
  # released before, which could not be recorded: then it may run, or have ended
  state=$(squeue -h -a -j "$1" -o '%T' 2> /dev/null) || state=''
  if [ "$state" != RUNNING ] && [ "$state" != COMPLETING ]; then later "$id is not released yet: it begins within 900 s"; fi
}

if [ -f "$job/cluster" ] && [ "$(< "$job/cluster")" != "$cluster" ]; then
  taken "is a job of another cluster on this file system (head node $(head -c 60 "$job/cluster")). Use a new token"
fi
if [ -s "$job/stages" ]; then
  [ "$(cat "$job/digest")" = "$digest" ] || taken "already exists as another job. Use a new token, or submit the same job"
  trap '' HUP INT TERM
  resume
  report true
  exit 0
fi

venv="$HOME"/aws_neuron_venv_pytorch
if [ ! -f "$venv/bin/activate" ]; then
  die "there is no virtual environment at $venv: the head node's bootstrap has not finished, or failed"
fi

# An interrupted submission may have left stages. The directory is the record of it, so it is deleted last.
undo() {
  local stage
  for stage in prepare precompile train; do forget "$stage"; done
  rm -rf "$job"
}
if [ -e "$job" ]; then undo; fi
trap undo EXIT

# Scripts contain the user's environment: only the user may read them.
umask 077
mkdir -p "$job/logs" "$job/state" "$job/script" "$job/work"
umask 022
printf '%s\n' "$cluster" > "$job/cluster"
write "$job/job.json" <<'EOF'
{
  "checkpoints": "output",
  "global_batch_size": 65536,
  "id": "bert-large-20261120-4f3a9c",
  "instance_type": "trn1.32xlarge",
  "job": {
    "nodes": 16
  },
  "kind": "bert-large",
  "nodes": 16,
  "prepare_queue": "cpu",
  "queue": "compute1",
  "stages": [
    "prepare",
    "precompile",
    "train"
  ],
  "workers": 512
}
EOF
write "$job/summary.json" <<'EOF'
{"checkpoints": "output", "global_batch_size": 65536, "instance_type": "trn1.32xlarge", "kind": "bert-large", "nodes": 16, "prepare_queue": "cpu", "queue": "compute1"}
EOF
["$job/stage.sh"]
write "$job/node.sh" <<'EOF'
#!/bin/bash
# One node of bert-large-20261120-4f3a9c: bash node.sh JOB STAGE, started on each node by srun.
set -euo pipefail
job=$1 stage=$2
trn=${job%/jobs/*}
host=${SLURMD_NODENAME:-$(hostname -s)}
export NODE_RANK=$SLURM_NODEID
export NPROC_PER_NODE=32
export ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB=512
export FI_EFA_USE_DEVICE_RDMA=1
export FI_PROVIDER=efa
export HF_HUB_OFFLINE=1
export MASTER_PORT=2022
export NEURON_RT_EXEC_TIMEOUT=600
export NEURON_RT_STOCHASTIC_ROUNDING_EN=1
export NEURON_RT_STOCHASTIC_ROUNDING_SEED=0
export PYTHONUNBUFFERED=1
export XLA_TRANSFER_SEED_ASYNC=1
# a compile cache for each node: locks do not hold on NFS, so nodes must not share one
cache=$trn/neuron_cache/bert-large/$host
NEURON_CC_FLAGS="--cache_dir=$cache${NEURON_CC_FLAGS:+ $NEURON_CC_FLAGS}"
export NEURON_CC_FLAGS

say() { printf 'trn: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

# An incompatible driver and runtime fail late, without a clear error message.
version() { sed -n 's/^\([0-9][0-9.]*\).*/\1/p' 2> /dev/null || true; }
# of the loaded driver; modinfo may find another one
driver_version() { cat "${TRN_SYS_ROOT:-}/sys/module/neuron/version" 2> /dev/null | version; }
runtime_version() {
  { dpkg-query -W -f '${Version}\n' aws-neuronx-runtime-lib || rpm -q --qf '%{VERSION}\n' aws-neuronx-runtime-lib; } 2> /dev/null | version
}
before() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }
# within VERSION FIRST BEFORE: an empty bound is open
within() { { [ -z "$2" ] || ! before "$1" "$2"; } && { [ -z "$3" ] || before "$1" "$3"; }; }
# Prints why the versions of this node are not compatible; nothing if they are, or are unknown.
versions_problem() {
  local driver runtime
  driver=$(driver_version || true) runtime=$(runtime_version || true)
  if [ -z "$driver" ]; then
    printf '%s\n' 'the Neuron driver is not loaded (there is no /sys/module/neuron/version). See dmesg on the node'
    return
  fi
  if [ -z "$runtime" ]; then return; fi
  if within "$driver" 2.29 '' && within "$runtime" '' 2.33; then
    printf '%s\n' "driver $driver and runtime $runtime are not compatible: "'"Neuron Driver 2.29 requires Neuron Runtime Library 2.33 or later" (AWS, release notes of Neuron Runtime 2.31.0, 2026-07-07). Deploy with another bootstrap: {neuron_release: ...}, or replace the node if its driver is not that of the release'
    return
  fi
  if within "$driver" '' 2.27 && within "$runtime" 2.32 ''; then
    printf '%s\n' "driver $driver and runtime $runtime are not compatible: "'"Neuron Runtime Library 2.32 is not backward-compatible with Neuron Driver 2.26 or earlier" (AWS, release notes of Neuron Runtime 2.30.0, 2026-05-21). Deploy with another bootstrap: {neuron_release: ...}, or replace the node if its driver is not that of the release'
    return
  fi
}
check_versions() {
  local problem
  problem=$(versions_problem)
  if [ -n "$problem" ]; then die "$problem"; else say "Neuron driver $(driver_version), runtime $(runtime_version)"; fi
}

# The one folder that an archive may have unpacked into, else the directory itself.
only_folder() {
  local inside=("$1"/*)
  if [ "${#inside[@]}" -ne 1 ] || [ ! -d "${inside[0]}" ]; then inside=("$1"); fi
  printf '%s\n' "${inside[0]}"
}

run() {
venv=$trn/environments/$(cat "$job/environment")
if [ ! -f "$venv/bin/activate" ]; then die "the environment of this job, $venv, was removed. Submit the job again"; fi
. "$venv/bin/activate"
check_versions
mkdir -p "$cache"
# each worker holds many connections at once ("Failed accept4: Too many open files")
files=$(ulimit -Sn)
if [ "$files" != unlimited ] && [ "$files" -lt 65535 ] && ! ulimit -n 65535 2> /dev/null; then
  say "at most $files files may be open here; large jobs need 65535"
fi
# keeps the port of Neuron's collectives free of outgoing connections
# by the node's bootstrap; an image of your own may lack that
grep -qw 48620 /proc/sys/net/ipv4/ip_local_reserved_ports ||
  sudo -n sysctl -q -w net.ipv4.ip_local_reserved_ports=48620 > /dev/null 2>&1 ||
  say "port 48620 could not be reserved"
samples_ref=${TRN_SAMPLES_REF:-2015d650cd89e4c671ae5bd1b5f1d4499d94d4dd}
cd "$trn/src/samples-$samples_ref/torch-neuronx/training/dp_bert_hf_pretrain"
data=$(only_folder "$trn/data/bert-seqlen128")
steps=7032
output=$job/output
if [ "$stage" = precompile ]; then
  steps=10
  output=$job/output.precompile
fi
mkdir -p "$output"
resume=()
if [ -n "${TRN_CHECKPOINT:-}" ] && [ "$stage" = train ]; then # graphs are compiled in the first steps
  resume=(--resume_ckpt --resume_ckpt_path "$TRN_CHECKPOINT")
fi
export HF_HOME=$trn/hf_cache
command=(
  python3 -m torch.distributed.run --nproc_per_node "$NPROC_PER_NODE"
  --nnodes "$NNODES" --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"
  "$job/script/launch.py" "limit_metadata,keep_random_state,keep_learning_rate,find_data_here" dp_bert_large_hf_pretrain_hdf5.py
  --data_dir "$data"
  --output_dir "$output"
  --metrics_file "$output/results.json"
  --optimizer LAMB
  --lr 0.006
  --batch_size 16
  --grad_accum_usteps 8
  --max_steps 7032
  --steps_this_run "$steps"
  "${resume[@]}"
)
if [ "$stage" = precompile ]; then
  neuron_parallel_compile "${command[@]}"
else
  "${command[@]}"
fi
}

# The first failure is recorded: it stops the other nodes, whose exit codes mean nothing.
ended() {
  local code=$?
  if [ "$code" -ne 0 ] && [ "$code" -ne 143 ]; then
    (set -C && printf '%s %s\n' "$code" "$NODE_RANK" > "$job/state/$stage.failed") 2> /dev/null || true
  fi
}
trap ended EXIT
: > "$job/state/$stage.begun"

# A program that is told to end has Slurm's KillWait to save its state: the task ends after it.
trap 'exit 143' TERM
run 2>&1 | (
  trap '' TERM
  exec tee -a "$job/logs/$stage.$NODE_RANK.log"
)
# A success is recorded here: at a signal, the trap's exit code is that of the command before, 0.
: > "$job/state/$stage.task.$SLURM_PROCID"
EOF
["$job/fetch.sh"]
write "$job/prepare.sh" <<'EOF'
#!/bin/bash
# bash prepare.sh JOB fetch|check: fetches what this job needs and the cluster does not have yet.
job=$1 mode=$2
trn=${job%/jobs/*}
base=$(readlink -f "$HOME"/aws_neuron_venv_pytorch) python=$base/bin/python3 index=https://pip.repos.neuron.amazonaws.com
if [ "$mode" = fetch ]; then : > "$job/state/prepare.begun"; fi
. "$job/fetch.sh"
samples_ref=${TRN_SAMPLES_REF:-2015d650cd89e4c671ae5bd1b5f1d4499d94d4dd}
source_tree samples https://github.com/aws-neuron/aws-neuron-samples.git "$samples_ref"
environment bert-large h5py==3.15.1 huggingface-hub==0.24.5 requests==2.31.0 tensorboard==2.21.0 transformers==4.44.0
hugging_face bert-large-uncased config.json pytorch_model.bin
data_archive bert-seqlen128 s3://neuron-s3/training_datasets/bert_pretrain_wikicorpus_tokenized_hdf5/bert_pretrain_wikicorpus_tokenized_hdf5_seqlen128.tar --no-sign-request
enough_files "$trn/data/bert-seqlen128" '*_training_*.hdf5' 512 'The training script needs a shard for each worker: use fewer nodes'
if [ "$mode" = fetch ]; then : > "$job/state/prepare.task.0"; fi
EOF
write "$job/prepare.sbatch" <<'EOF'
#!/bin/bash
#SBATCH --job-name=bert-large-20261120-4f3a9c:prepare
#SBATCH --comment=trn:bert-large-20261120-4f3a9c
#SBATCH --partition=cpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
job=$1 stage=prepare
. "$1/stage.sh"
begin
tasks 1 --nodes=1 --ntasks=1 bash "$job/prepare.sh" "$job" fetch
finished=yes
EOF
write "$job/precompile.sbatch" <<'EOF'
#!/bin/bash
#SBATCH --job-name=bert-large-20261120-4f3a9c:precompile
#SBATCH --comment=trn:bert-large-20261120-4f3a9c
#SBATCH --partition=compute1
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
job=$1 stage=precompile
. "$1/stage.sh"
begin
rendezvous
describe_checkpoints "$job/output" kind bert-large phase 1 optimizer lamb
TRN_CHECKPOINT=$(newest_checkpoint "$job/output")
export TRN_CHECKPOINT
delete_other_checkpoints "$TRN_CHECKPOINT"
launch
check_compiled
keep_nodes
finished=yes
EOF
write "$job/train.sbatch" <<'EOF'
#!/bin/bash
#SBATCH --job-name=bert-large-20261120-4f3a9c:train
#SBATCH --comment=trn:bert-large-20261120-4f3a9c
#SBATCH --partition=compute1
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
job=$1 stage=train
. "$1/stage.sh"
begin
compare_nodes
rendezvous
describe_checkpoints "$job/output" kind bert-large phase 1 optimizer lamb
TRN_CHECKPOINT=$(newest_checkpoint "$job/output")
export TRN_CHECKPOINT
delete_other_checkpoints "$TRN_CHECKPOINT"
launch
finished=yes
EOF
["$job/script/"launch.py]
["$job/script/"limit_metadata.py]
["$job/script/"keep_random_state.py]
["$job/script/"keep_learning_rate.py]
["$job/script/"find_data_here.py]
printf '%s\n' "$digest" > "$job/digest"

# Fetching uses a separate node, and is skipped if everything is already fetched.
declare -F addresses > /dev/null || addresses() { :; }
code=0
bash "$job/prepare.sh" "$job" check 3< <(addresses) || code=$?
case $code in
  0) ;;
  3) submit prepare ;;
  4) exit 1 ;; # it cannot run with what is on the cluster, as reported
  *) die "prepare.sh failed while it checked what is already fetched" ;;
esac
submit precompile
submit train
trap '' HUP INT TERM # from here on the submission is finished, not undone
mv "$job/stages.part" "$job/stages"
trap - EXIT
resume # Slurm's controller may have crashed in the meantime
resubmitted=''
report false
