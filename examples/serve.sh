#!/bin/bash
# vLLM on what a finetune job wrote, as a job on EKS: trn submit serve.sh --image IMAGE -- /efs/trn/jobs/JOB/output. docs/guides/serve.md
# Its first argument is a folder on the cluster, or a model of Hugging Face. Those behind it go to `vllm serve`. vLLM on Neuron loads no
# LoRA adapters, so PEFT merges them into their model first.
set -euo pipefail
model=${1:?give the folder of a checkpoint, such as /efs/trn/jobs/JOB/output}
own=$(dirname "$PWD")/serve
scratch=${TMPDIR:-/tmp}/serve-$(id -u)                  # on this node: locks of a compile cache do not hold on NFS
compiled=${TORCH_NEURONX_NEFF_CACHE_DIR:-$own}/vllm.tar # on the shared file system, for the next job
if ! command -v vllm > /dev/null; then echo "there is no vLLM: submit it on EKS with --image (docs/guides/serve.md)" >&2; exit 1; fi
if [ "${NNODES:-1}" -gt 1 ]; then echo "vLLM runs on one node here: submit it with --nodes 1" >&2; exit 1; fi
mkdir -p "$own" "$scratch/cache" "$(dirname "$compiled")"
trap 'rm -f "$own/../forward"' EXIT
VLLM_API_KEY=$(umask 077; python3 -c 'import secrets; print(secrets.token_urlsafe(32))' | tee "$own/key")
export VLLM_API_KEY VLLM_CACHE_ROOT="$scratch/cache" VLLM_NO_USAGE_STATS=1 HF_HOME="${HF_HOME:-${PWD%/jobs/*}/hf_cache}"
export VLLM_ENGINE_READY_TIMEOUT_S=3600 VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1200 VLLM_NEURON_COMPILATION_TIMEOUT=1200 # a first start compiles
if [ ! -e /dev/infiniband ]; then export NEURON_SKIP_EFA_AFFINITY=1; fi
if [ -e "$compiled" ]; then tar -xf "$compiled" -C "$VLLM_CACHE_ROOT" || echo "$compiled cannot be read: vLLM compiles again"; fi
if [ -e "$model/adapter_config.json" ]; then
  echo "PEFT merges the adapters into their model"
  python3 -m pip install --quiet --no-deps --upgrade --target "$own/packages" peft==0.21.2 accelerate==1.15.0
  TORCH_DEVICE_BACKEND_AUTOLOAD=0 PYTHONPATH="$own/packages${PYTHONPATH:+:$PYTHONPATH}" python3 -c 'import sys, peft, transformers
peft.AutoPeftModelForCausalLM.from_pretrained(sys.argv[1], dtype="auto").merge_and_unload().save_pretrained(sys.argv[2])
transformers.AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])' "$model" "$scratch/model"
  model=$scratch/model
fi
port=8888 # or the next one that is free
while (: < "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do port=$((port + 1)); done
cores=${NPROC_PER_NODE:-4} # of which 8 at most: models of this size have 8 heads of keys and values
vllm serve "$model" --host 127.0.0.1 --port "$port" --served-model-name tuned --tensor-parallel-size $((cores < 8 ? cores : 8)) \
  --max-model-len 4096 --max-num-batched-tokens 2048 --max-num-seqs 4 \
  --additional-config '{"neuron_config": {"num_batched_tokens_buckets": [2048], "num_seqs_buckets": [4]}}' "${@:2}" &
trap 'kill "$!" 2> /dev/null || true' TERM INT
until curl --silent --fail --noproxy '*' --output /dev/null "http://127.0.0.1:$port/health"; do
  if ! kill -0 "$!" 2> /dev/null; then wait "$!"; exit 1; fi; sleep 2
done
(umask 077; echo "$port /v1" > "$own/forward"; mv "$own/forward" "$own/../forward") # trn reads no file that others can read
echo "vLLM answers: trn forward latest leads to it, trn cp latest:serve/key . fetches its key, trn cancel latest ends it"
if tar -cf "$compiled.new" -C "$VLLM_CACHE_ROOT" .; then mv "$compiled.new" "$compiled"; fi
wait "$!" || wait "$!" # the first one ends at a signal
