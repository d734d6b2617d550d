#!/bin/bash
# gpt3-6.7b-20261120-4f3a9c: submitted to Slurm by the job's user on the head node of trn-slurm. Running it again changes nothing.
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

id=gpt3-6.7b-20261120-4f3a9c
shared="${TRN_SHARED_ROOT:-}"/efs
trn=$shared/trn
job=$trn/jobs/$id
digest=98369d6c441effcea2c2469cb238587390de054c464e0e142da86664523598f5
unset "${!SBATCH_@}" "${!SQUEUE_@}" "${!SCONTROL_@}" # somebody's own defaults

die() {
  printf '%s\n' "$*" >&2
  exit 1
}

# What is begun is finished by the same script, run once more.
later() {
  printf '%s\n' "$*" >&2
  exit 75
}

# On a disk of the head node alone, no compute node would find the job.
if [ ! -d "$shared" ] || { [ -z "${TRN_SHARED_ROOT:-}" ] && ! mountpoint -q "$shared"; }; then
  die "$shared is not mounted on this machine. Is it the head node, and its bootstrap complete?"
fi

# The jobs' directory belongs to the job's user, the top of a new file system to root.
if ! mkdir -p "$trn/jobs/.locks" 2> /dev/null; then
  sudo -n install -d -o "$(id -u)" -g "$(id -g)" "$trn" "$trn/jobs" "$trn/jobs/.locks"
fi

# One submission of an id at a time, also from two clients at once.
exec 9> "$trn/jobs/.locks/e4"
flock -w 60 9 || later "another submission of $id is still under way"

report() {
  local stages='' name number
  while read -r name number; do stages+="${stages:+, }\"$name\": $number"; done < "$job/stages"
  printf 'trn-result: {"id": "%s", "existing": %s, "stages": {%s}}\n' "$id" "$1" "$stages"
}

# The first stage is held until all is written down, so that no stage can end before the next one knows of it.
release() {
  local first
  if [ -e "$job/released" ]; then return 0; fi
  read -r _ first < "$job/stages"
  if ! scontrol release "$first"; then
    # released before, and this could not be noted: then it may run, or have ended
    if squeue -h -a -t PD -j "$first" -o %r 2>&1 | grep -qv 'Invalid job id'; then later "$id is held still"; fi
  fi
  : > "$job/released"
}

if [ -e "$job/stages" ]; then
  [ "$(cat "$job/digest")" = "$digest" ] || die "$id is another job already. Use a new token, or submit what it was"
  release
  report true
  exit 0
fi

venv="$HOME"/aws_neuron_venv_pytorch
if [ ! -f "$venv/bin/activate" ]; then
  die "there is no virtual environment at $venv: the head node's bootstrap has not finished, or failed"
fi

# A submission that broke off may have left held stages. The directory is what tells of it, so it goes last.
undo() {
  local left
  left=$(squeue -h -u "$(id -un)" -o '%A %k') || later "Slurm does not answer"
  left=$(sed -n "s/ trn:$id\$//p" <<< "$left")
  # shellcheck disable=SC2086  # job numbers
  if [ -n "$left" ]; then scancel $left || later "Slurm does not answer"; fi
  rm -rf "$job"
}
if [ -e "$job" ]; then undo; fi
trap undo EXIT

# Scripts carry the user's environment: nobody else reads them.
(
  umask 077
  mkdir -p "$job/logs" "$job/state" "$job/script" "$job/work"
)
cat > "$job/job.json" <<'EOF'
{
  "expected": {
    "extrapolated": false,
    "sequences_per_second": 143.75,
    "source": "published for 16 nodes, SDK 2.13"
  },
  "global_batch_size": 1024,
  "id": "gpt3-6.7b-20261120-4f3a9c",
  "instance_type": "trn1.32xlarge",
  "job": {
    "nodes": 16
  },
  "kind": "gpt3-6.7b",
  "nodes": 16,
  "queue": "compute1",
  "stages": [
    "prepare",
    "precompile",
    "train"
  ],
  "workers": 512
}
EOF
[stage.sh]
cat > "$job/node.sh" <<'EOF'
#!/bin/bash
# One node of gpt3-6.7b-20261120-4f3a9c: bash node.sh JOB STAGE, started on each node by srun.
set -euo pipefail
job=$1 stage=$2
trn=${job%/jobs/*}
host=${SLURMD_NODENAME:-$(hostname -s)}
export NODE_RANK=$SLURM_NODEID
export NPROC_PER_NODE=32
export FI_EFA_USE_DEVICE_RDMA=1
export FI_PROVIDER=efa
export MASTER_PORT=2022
export NEURON_FUSE_SOFTMAX=1
export NEURON_NUM_RECENT_MODELS_TO_KEEP=3
export NEURON_RT_EXEC_TIMEOUT=600
export NEURON_RT_STOCHASTIC_ROUNDING_EN=1
export NEURON_RT_STOCHASTIC_ROUNDING_SEED=0
export NEURON_TRANSFER_ALL_PARAMETERS_WITH_STATIC_RING=1
export PYTHONUNBUFFERED=1
export XLA_USE_BF16=1
# a compile cache for each node: locks do not hold on NFS, so nodes must not share one
cache=$trn/neuron_cache/gpt3-6.7b/$host
NEURON_CC_FLAGS="--cache_dir=$cache${NEURON_CC_FLAGS:+ $NEURON_CC_FLAGS}"
export NEURON_CC_FLAGS

say() { printf 'trn: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

run() {
venv="$HOME"/aws_neuron_venv_pytorch
if [ ! -f "$venv/bin/activate" ]; then die "there is no virtual environment at $venv"; fi
. "$venv/bin/activate"
mkdir -p "$cache"
# each worker holds many connections at once ("Failed accept4: Too many open files")
files=$(ulimit -Sn)
if [ "$files" != unlimited ] && [ "$files" -lt 65535 ] && ! ulimit -n 65535 2> /dev/null; then
  say "at most $files files may be open here; large jobs need 65535"
fi
# the port of Neuron's collectives must not be taken for an outgoing connection
sudo -n sysctl -q -w net.ipv4.ip_local_reserved_ports=48620 > /dev/null 2>&1 || say "port 48620 could not be reserved"
megatron_ref=${TRN_MEGATRON_REF:-868d46cccb320a05eeac833be4a55c2c07db620a}
cd "$trn/src/megatron-$megatron_ref"
data="$trn/data/gpt2-wikipedia"
steps=143051
tensorboard=$job/tensorboard
start=(--use-cpu-initialization)
if [ "$stage" = precompile ]; then
  steps=325
  tensorboard=$job/work/precompile  # losses of a run without results mean nothing
elif [ -n "${TRN_CHECKPOINT:-}" ]; then
  start=(--load-xser "$job/checkpoints")  # with initialization on the CPU too, the host runs out of memory
fi
mkdir -p "$tensorboard"
command=(
  python3 -m torch.distributed.run --nproc_per_node "$NPROC_PER_NODE" --nnodes "$NNODES" --node_rank "$NODE_RANK"
  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"
  pretrain_gpt.py
  --tensor-model-parallel-size 32
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32
  --seq-length 2048 --max-position-embeddings 2048
  --micro-batch-size 1
  --global-batch-size 1024
  --train-iters "$steps"
  --lr-decay-iters 123977
  --data-path "$data"/my-gpt2_text_document
  --vocab-file "$data/gpt2-vocab.json"
  --merge-file "$data/gpt2-merges.txt"
  --data-impl mmap --split '100,0,0' --distributed-backend xla
  --lr 0.00012 --min-lr 1.2e-05
  --lr-decay-style cosine --lr-warmup-fraction 0.00125
  --weight-decay 1e-1 --clip-grad 1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006
  --attention-dropout 0 --hidden-dropout 0
  --log-interval 1 --tensorboard-log-interval 1
  --eval-interval "$steps" --eval-iters 1000
  --no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion --no-async-tensor-model-parallel-allreduce
  --no-contiguous-buffers-in-local-ddp
  --save-xser "$job/checkpoints" --save-interval 2000 --keep-last-checkpoint-only
  --tensorboard-dir "$tensorboard"
  "${start[@]}"
)
if [ "$stage" = precompile ]; then
  neuron_parallel_compile "${command[@]}"
else
  "${command[@]}"
fi
}

# Who fails first is noted: the others are stopped for it, and their exit codes say nothing.
ended() {
  local code=$?
  if [ "$code" -ne 0 ] && [ "$code" -ne 143 ]; then
    (set -C && printf '%s %s\n' "$code" "$NODE_RANK" > "$job/state/$stage.failed") 2> /dev/null || true
  fi
}
trap ended EXIT

run 2>&1 | tee -a "$job/logs/$stage.$NODE_RANK.log"
EOF
[fetch.sh]
cat > "$job/prepare.sh" <<'EOF'
#!/bin/bash
# bash prepare.sh JOB fetch|check: whatever this job needs and the cluster has not got yet.
job=$1 mode=$2
trn=${job%/jobs/*}
venv="$HOME"/aws_neuron_venv_pytorch
. "$job/fetch.sh"
megatron_ref=${TRN_MEGATRON_REF:-868d46cccb320a05eeac833be4a55c2c07db620a}
source_tree megatron https://github.com/aws-neuron/aws-neuron-reference-for-megatron-lm.git "$megatron_ref"
packages "megatron-$megatron_ref" pybind11 regex
megatron_helpers "$trn/src/megatron-$megatron_ref"
data_file gpt2-wikipedia s3://models.huggingface.co/bert/gpt2-vocab.json --no-sign-request
data_file gpt2-wikipedia s3://models.huggingface.co/bert/gpt2-merges.txt --no-sign-request
data_file gpt2-wikipedia s3://neuron-s3/training_datasets/gpt/wikipedia/my-gpt2_text_document.bin --no-sign-request
data_file gpt2-wikipedia s3://neuron-s3/training_datasets/gpt/wikipedia/my-gpt2_text_document.idx --no-sign-request
data_file gpt2-wikipedia s3://neuron-s3/training_datasets/gpt/wikipedia/license.txt --no-sign-request
EOF
cat > "$job/prepare.sbatch" <<'EOF'
#!/bin/bash
#SBATCH --job-name=gpt3-6.7b-20261120-4f3a9c:prepare
#SBATCH --comment=trn:gpt3-6.7b-20261120-4f3a9c
#SBATCH --partition=compute1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
job=$1 stage=prepare
. "$job/stage.sh"
begin
srun --nodes=1 --ntasks=1 bash "$job/prepare.sh" "$job" fetch
EOF
cat > "$job/precompile.sbatch" <<'EOF'
#!/bin/bash
#SBATCH --job-name=gpt3-6.7b-20261120-4f3a9c:precompile
#SBATCH --comment=trn:gpt3-6.7b-20261120-4f3a9c
#SBATCH --partition=compute1
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
job=$1 stage=precompile
. "$job/stage.sh"
begin
rendezvous
TRN_CHECKPOINT=
if [ -s "$job/checkpoints/latest_checkpointed_iteration.txt" ]; then TRN_CHECKPOINT=latest; fi
export TRN_CHECKPOINT
launch
check_compiled
keep_nodes
EOF
cat > "$job/train.sbatch" <<'EOF'
#!/bin/bash
#SBATCH --job-name=gpt3-6.7b-20261120-4f3a9c:train
#SBATCH --comment=trn:gpt3-6.7b-20261120-4f3a9c
#SBATCH --partition=compute1
#SBATCH --nodes=16
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
job=$1 stage=train
. "$job/stage.sh"
begin
compare_nodes
rendezvous
TRN_CHECKPOINT=
if [ -s "$job/checkpoints/latest_checkpointed_iteration.txt" ]; then TRN_CHECKPOINT=latest; fi
export TRN_CHECKPOINT
launch
EOF
printf '%s\n' "$digest" > "$job/digest"

previous='' options=(--hold)
submit() {
  local number
  if [ -n "$previous" ]; then options=(--dependency="afterok:$previous" --kill-on-invalid-dep=yes); fi
  : > "$job/logs/$1.log" # NFS remembers for half a minute that a file was not there
  number=$(sbatch --parsable "${options[@]}" --output="$job/logs/$1.log" "$job/$1.sbatch" "$job")
  previous=${number%%;*}
  printf '%s %s\n' "$1" "$previous" >> "$job/stages.part"
}
# Fetching takes a node of its own, once: nothing waits for it where all is there already.
code=0
bash "$job/prepare.sh" "$job" check || code=$?
case $code in
  0) ;;
  3) submit prepare ;;
  *) die "prepare.sh failed while it looked for what is there" ;;
esac
submit precompile
submit train
trap '' HUP INT TERM # from here on it is finished, not undone
mv "$job/stages.part" "$job/stages"
trap - EXIT
release
report false
