#!/bin/bash
# gpt-6.7b-20261120-4f3a9c: submitted to Slurm by the job's user on the head node of trn-slurm. Running it again changes nothing.
set -euo pipefail
umask 022
export LC_ALL=C.UTF-8

id=gpt-6.7b-20261120-4f3a9c
shared="${TRN_SHARED_ROOT:-}"/efs
trn=$shared/trn
job=$trn/jobs/$id
digest=297f51343940f24b4635b48a1d5d21ad62d60e3252cf3c2a219a448b1bded746
cluster=i-0123456789abcdef0 # job numbers are valid only on this cluster
unset "${!SBATCH_@}" "${!SQUEUE_@}" "${!SCONTROL_@}" # the user's own defaults

[as in bert-large.sh]
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
  "checkpoints": "output/checkpoints",
  "global_batch_size": 1024,
  "id": "gpt-6.7b-20261120-4f3a9c",
  "instance_type": "trn1.32xlarge",
  "job": {
    "nodes": 16
  },
  "kind": "gpt-6.7b",
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
{"checkpoints": "output/checkpoints", "global_batch_size": 1024, "instance_type": "trn1.32xlarge", "kind": "gpt-6.7b", "nodes": 16, "prepare_queue": "cpu", "queue": "compute1"}
EOF
["$job/stage.sh"]
write "$job/node.sh" <<'EOF'
#!/bin/bash
# One node of gpt-6.7b-20261120-4f3a9c: bash node.sh JOB STAGE, started on each node by srun.
set -euo pipefail
job=$1 stage=$2
trn=${job%/jobs/*}
host=${SLURMD_NODENAME:-$(hostname -s)}
export NODE_RANK=$SLURM_NODEID
export NPROC_PER_NODE=32
export FI_EFA_USE_DEVICE_RDMA=1
export FI_PROVIDER=efa
export HF_HUB_OFFLINE=1
export HYDRA_FULL_ERROR=1
export MALLOC_ARENA_MAX=128
export MASTER_PORT=2022
export NEURON_RT_EXEC_TIMEOUT=600
export PYTHONUNBUFFERED=1
export XLA_DISABLE_FUNCTIONALIZATION=0
# a compile cache for each node: locks do not hold on NFS, so nodes must not share one
cache=$trn/neuron_cache/gpt-6.7b/$host
NEURON_CC_FLAGS="--cache_dir=$cache${NEURON_CC_FLAGS:+ $NEURON_CC_FLAGS}"
export NEURON_CC_FLAGS

say() { printf 'trn: %s\n' "$*"; }
[as in bert-large.sh]
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
nxdt_ref=${TRN_NXDT_REF:-9169aa03f39efd4eb02da63891a7ed98defb1714}
cd "$trn/src/nxdt-$nxdt_ref/examples"
data="$trn/data/gpt2-wikipedia"
# while compiling, the program stops after ten steps and writes no checkpoint; it would start from one that is in its directory
output=$job/output COMPILE=0
if [ "$stage" = precompile ]; then output=$job/output.precompile COMPILE=1; fi
mkdir -p "$output"
export COMPILE
export HF_HOME=$trn/hf_cache
command=(
  python3 -m torch.distributed.run --nproc_per_node "$NPROC_PER_NODE"
  --nnodes "$NNODES" --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"
  "$job/script/launch.py" "limit_metadata,count_all_batches" training_orchestrator.py
  --config-path=conf --config-name=megatron_gpt_config
  trainer.devices="$NPROC_PER_NODE" trainer.num_nodes="$NNODES"
  trainer.max_steps=20000
  exp_manager.explicit_log_dir="$output"
  exp_manager.checkpoint_callback_params.every_n_train_steps=200 exp_manager.checkpoint_callback_params.use_master_weights_in_ckpt=True
  distributed_strategy.tensor_model_parallel_size=8
  data.micro_batch_size=1 data.global_batch_size=1024
  "data.data_prefix=[1.0,$data/my-gpt2_text_document]"
  data.tokenizer.vocab_file="$data/gpt2-vocab.json" data.tokenizer.merge_file="$data/gpt2-merges.txt"
  model.optim.lr=0.00015 compiler_cache_url="$cache"
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
apex_ref=${TRN_APEX_REF:-e74a67bba3ee679f778670e17edc21639008ae0a} apex_url=https://github.com/NVIDIA/apex.git
containers_ref=${TRN_CONTAINERS_REF:-033cc6a872af8f112a2cd9a4c8d4236ac3e0832c} containers_url=https://github.com/aws-neuron/deep-learning-containers.git
# shellcheck shell=bash
# NxD Training as the vendor's training images have it: NeMo, Apex and Megatron's core by their own requirements and scripts. Where
# the cluster or the image has these, only NeMo's helper is compiled.
: "${trn:?}" "${containers_url:?}" "${containers_ref:?}" "${apex_url:?}" "${apex_ref:?}"
for tool in g++ make python3-config; do
  if ! command -v "$tool" > /dev/null; then
    printf 'trn: there is no %s here, which NeMo needs. Install it (python3-config is in python3-dev), or use an image that has it\n' "$tool" >&2
    exit 4
  fi
done

# What the vendor's list leaves open, as of the day of that image (PyPI on 2026-02-26, without PyTorch and what belongs to it): NeMo does not
# import with today's pangu and pyarrow.
steps() {
  local containers=$trn/src/containers-$containers_ref work=$VIRTUAL_ENV/build packages nemo
  if ! python3 -c 'import importlib.util as u; raise SystemExit(not all(map(u.find_spec, ["apex", "megatron", "nemo"])))'; then
    source_tree containers "$containers_url" "$containers_ref"
    source_tree apex "$apex_url" "$apex_ref"
    mkdir "$work"
    cp -r "$trn/src/apex-$apex_ref" "$work/apex"
    cp "$containers/common/apex_setup.py" "$work/apex/setup.py"
    printf '%s\n' >> "$PIP_CONSTRAINT" \
      absl-py==2.4.0 aiobotocore==2.17.0 aiohappyeyeballs==2.6.1 aiohttp==3.13.3 aioitertools==0.13.0 aiosignal==1.4.0 aniso8601==10.0.1 \
      annotated-types==0.7.0 antlr4-python3-runtime==4.9.3 asciitree==0.3.3 async-timeout==5.0.1 attrs==25.4.0 beautifulsoup4==4.14.3 \
      blinker==1.9.0 boto3==1.35.93 botocore==1.35.93 braceexpand==0.1.7 certifi==2026.2.25 charset-normalizer==3.4.4 click==8.3.1 \
      colorama==0.4.6 'contourpy==1.3.2; python_version == "3.10"' 'contourpy==1.3.3; python_version > "3.10"' coverage==7.13.4 \
      cycler==0.12.1 datasets==3.0.0 dill==0.3.8 donfig==0.8.1.post1 einops==0.8.2 exceptiongroup==1.3.1 faiss-cpu==1.13.2 fasteners==0.20 \
      filelock==3.24.3 flask==3.1.3 flask-restful==0.3.10 fonttools==4.61.1 frozenlist==1.8.0 fsspec==2024.6.1 ftfy==6.3.1 gdown==5.2.1 \
      gitdb==4.0.12 gitpython==3.1.46 google-crc32c==1.8.0 grpcio==1.78.0 h5py==3.15.1 hf-xet==1.3.2 huggingface-hub==0.36.2 \
      hydra-core==1.3.2 idna==3.11 ijson==3.5.0 inflect==7.5.0 iniconfig==2.3.0 ipadic==1.0.0 itsdangerous==2.2.0 jieba==0.42.1 \
      jinja2==3.1.6 jmespath==1.1.0 joblib==1.5.3 kiwisolver==1.4.9 lightning==2.5.0 lightning-utilities==0.15.3 llvmlite==0.43.0 \
      lockfile==0.12.2 lxml==6.0.2 markdown==3.10.2 markdown-it-py==4.0.0 markupsafe==3.0.3 matplotlib==3.10.8 mdurl==0.1.2 \
      mecab-python3==1.0.12 ml-dtypes==0.5.0 more-itertools==10.8.0 mpmath==1.3.0 multidict==6.7.1 multiprocess==0.70.16 \
      nemo-toolkit==2.1.0 'networkx==3.4.2; python_version == "3.10"' 'networkx==3.6.1; python_version > "3.10"' ninja==1.13.0 nltk==3.9.3 \
      numba==0.60.0 'numcodecs==0.13.1; python_version == "3.10"' 'numcodecs==0.16.5; python_version > "3.10"' numpy==1.26.4 \
      omegaconf==2.2.3 onnx==1.17.0 opencc==1.1.9 'pandas==2.3.3; python_version == "3.10"' 'pandas==3.0.1; python_version > "3.10"' \
      pangu==4.0.6.1 pillow==12.1.1 platformdirs==4.9.2 pluggy==1.6.0 portalocker==3.2.0 propcache==0.4.1 protobuf==3.20.3 psutil==7.2.2 \
      pulp==3.3.0 pyarrow==23.0.1 pydantic==2.12.5 pydantic-core==2.41.5 pygments==2.19.2 pyparsing==3.3.2 pysocks==1.7.1 pytest==9.0.2 \
      pytest-cov==7.0.0 pytest-mock==3.15.1 pytest-random-order==1.2.0 python-daemon==3.1.2 python-dateutil==2.9.0.post0 \
      pytorch-lightning==2.5.0 pytz==2025.2 pyyaml==6.0.1 rapidfuzz==3.14.3 regex==2026.2.19 requests==2.32.4 rich==14.3.3 \
      rouge-score==0.1.2 ruamel-yaml==0.19.1 s3fs==2024.6.1 s3transfer==0.10.4 sacrebleu==2.6.0 sacremoses==0.1.1 safetensors==0.7.0 \
      'scikit-learn==1.7.2; python_version == "3.10"' 'scikit-learn==1.8.0; python_version > "3.10"' \
      'scipy==1.15.3; python_version == "3.10"' 'scipy==1.17.1; python_version > "3.10"' sentence-transformers==5.2.3 sentencepiece==0.2.1 \
      sentry-sdk==2.53.0 six==1.17.0 smmap==5.0.2 soupsieve==2.8.3 sympy==1.14.0 tabulate==0.9.0 tensorboard==2.20.0 \
      tensorboard-data-server==0.7.2 tensorstore==0.1.45 text-unidecode==1.3 threadpoolctl==3.6.0 tiktoken==0.12.0 tokenizers==0.22.2 \
      tomli==2.4.0 torchmetrics==0.10.3 tqdm==4.67.3 transformers==4.56.2 typeguard==4.5.1 typing-extensions==4.15.0 \
      typing-inspection==0.4.2 tzdata==2025.3 urllib3==2.6.3 wandb==0.25.0 wcwidth==0.6.0 webdataset==0.1.62 werkzeug==3.1.6 wget==3.2 \
      wrapt==1.17.3 xxhash==3.6.0 yarl==1.22.0 youtokentome==1.0.6 'zarr==2.18.3; python_version == "3.10"' \
      'zarr==3.1.5; python_version > "3.10"'
    pip install --no-build-isolation -r "$containers/common/nxdt_requirements.txt" "$work/apex"
    (cd "$work" && bash "$containers/common/nxdt_install_setup.sh")
    rm -rf "$work"
  fi
  # before it trains, rank 0 compiles this helper unless it is there: in a pod it could not, as NeMo is in the image
  packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  nemo=$(python3 -c 'import importlib.util as u; print(u.find_spec("nemo").submodule_search_locations[0])')
  if [ "$nemo" != "$packages/nemo" ]; then cp -r "$nemo" "$packages/nemo"; fi
  make -C "$packages/nemo/collections/nlp/data/language_modeling/megatron"
}

environment gpt-6.7b neuronx_distributed==0.17.26814 neuronx_distributed_training==1.7.0 Cython packaging psutil pybind11 'setuptools>=70,<81' torchvision wheel
has_modules 'Use an image or a Neuron release that has it, or add it to bootstrap.pip_packages' neuronx_distributed neuronx_distributed_training
nxdt_ref=${TRN_NXDT_REF:-9169aa03f39efd4eb02da63891a7ed98defb1714}
source_tree nxdt https://github.com/aws-neuron/neuronx-distributed-training.git "$nxdt_ref"
hugging_face gpt2 '*.json' merges.txt
data_file gpt2-wikipedia s3://models.huggingface.co/bert/gpt2-vocab.json --no-sign-request 196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783
data_file gpt2-wikipedia s3://models.huggingface.co/bert/gpt2-merges.txt --no-sign-request 1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5
data_file gpt2-wikipedia s3://neuron-s3/training_datasets/gpt/wikipedia/my-gpt2_text_document.bin --no-sign-request
data_file gpt2-wikipedia s3://neuron-s3/training_datasets/gpt/wikipedia/my-gpt2_text_document.idx --no-sign-request
data_file gpt2-wikipedia s3://neuron-s3/training_datasets/gpt/wikipedia/license.txt --no-sign-request
if [ "$mode" = fetch ]; then : > "$job/state/prepare.task.0"; fi
EOF
write "$job/prepare.sbatch" <<'EOF'
#!/bin/bash
#SBATCH --job-name=gpt-6.7b-20261120-4f3a9c:prepare
#SBATCH --comment=trn:gpt-6.7b-20261120-4f3a9c
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
#SBATCH --job-name=gpt-6.7b-20261120-4f3a9c:precompile
#SBATCH --comment=trn:gpt-6.7b-20261120-4f3a9c
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
describe_checkpoints "$job/output/checkpoints" kind gpt-6.7b tensor_parallel 8 workers 512
keep_newest_checkpoint "$job/output/checkpoints"
launch
check_compiled
keep_nodes
finished=yes
EOF
write "$job/train.sbatch" <<'EOF'
#!/bin/bash
#SBATCH --job-name=gpt-6.7b-20261120-4f3a9c:train
#SBATCH --comment=trn:gpt-6.7b-20261120-4f3a9c
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
describe_checkpoints "$job/output/checkpoints" kind gpt-6.7b tensor_parallel 8 workers 512
keep_newest_checkpoint "$job/output/checkpoints"
launch
finished=yes
EOF
["$job/script/"launch.py]
["$job/script/"limit_metadata.py]
["$job/script/"count_all_batches.py]
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
