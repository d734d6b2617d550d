"""What each kind of job does on a node, and what it needs fetched: shell text from plans. Pure.

Training commands are written out here rather than left to the vendor's launch scripts, which divide the accumulation
steps by the nodes without looking at the remainder.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from trainium_cdk.catalog.sources import SourceTree, sources
from trainium_cdk.jobs import quote
from trainium_cdk.jobs.models import BertLarge, Gpt3, Script
from trainium_cdk.jobs.plan import BERT, Plan

_BERT_FOLDER = "torch-neuronx/training/dp_bert_hf_pretrain"
_BERT_PRECOMPILE_STEPS = 10
# fewer leave graphs out (pytorch/xla#4994)
_GPT_PRECOMPILE_STEPS = 325
_GPT_STEPS, _GPT_DECAY_STEPS = 143_051, 123_977


@dataclass(frozen=True)
class Template:
    """Shell lines of one job.

    Attributes:
        prepare: calls of the functions in `shell/fetch.sh`.
        before: lines of the batch scripts, before the nodes start; what they export reaches every node.
        node: lines that each node runs; `$stage` is precompile or train.
        helpers: functions that `node` calls.
        require: lines that the submission runs first: what is missing is said before a node is asked for.
    """

    prepare: str
    before: str
    node: str
    helpers: str = ""
    require: str = ""


def template(plan: Plan) -> Template:
    job = plan.job
    if isinstance(job, BertLarge):
        return _bert(plan, job)
    if isinstance(job, Gpt3):
        return _gpt(plan, job)
    return _script(job)


def _on_cluster(path: str, plan: Plan) -> str:
    """A check that a path is there, where the head node can tell: on a shared file system."""
    if not any(path == m or path.startswith(f"{m}/") for m in plan.cluster.mount_dirs):
        return ""
    found = f'"${{TRN_SHARED_ROOT:-}}"{quote.word(path)}'
    return f'[ -e {found} ] || die "there is no "{quote.word(path)}" on the cluster. Check the path"\n'


def _tree(name: str, tree: SourceTree) -> str:
    return f"{name}_ref=${{{tree.ref_variable}:-{tree.commit}}}"


def _data(data: str | None, dataset: str) -> tuple[str, str]:
    """(lines that fetch it, shell word of the directory it is then in)."""
    if data is None:
        lines = []
        for public in sources().datasets[dataset]:
            call = "data_archive" if public.uri.endswith(".tar") else "data_file"
            lines.append(f"{call} {dataset} {public.uri} --no-sign-request")
        return "\n".join(lines), f'"$trn/data/{dataset}"'
    if data.startswith("/"):
        return "", f'"${{TRN_SHARED_ROOT:-}}"{quote.word(data)}'
    stem = re.sub(r"[^a-z0-9]+", "-", data.removeprefix("s3://").lower()).strip("-")[-40:]
    name = f"{stem}-{hashlib.sha256(data.encode()).hexdigest()[:8]}"
    if data.endswith(".tar"):
        return f"data_archive {name} {quote.word(data)} ''", f'"$trn/data/{name}"'
    return f"data_prefix {name} {quote.word(data)}", f'"$trn/data/{name}"'


def _command(program: str, options: list[str | tuple[str, str]]) -> str:
    """A torchrun command as the array `command`. Option values are shell words already.

    It is started as a module: the script `torchrun` runs the Python it was installed with, which on Kubernetes is the image's and
    does not see the packages of the prepared environment.
    """
    lines = [
        "command=(",
        '  python3 -m torch.distributed.run --nproc_per_node "$NPROC_PER_NODE" --nnodes "$NNODES" --node_rank "$NODE_RANK"',
    ]
    lines += ['  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"', f"  {program}"]
    lines += [f"  {' '.join(o) if isinstance(o, tuple) else o}" for o in options]
    return "\n".join([*lines, ")"])


_ONLY_FOLDER = """# The one folder that an archive may have unpacked into, else the directory itself.
only_folder() {
  local inside=("$1"/*)
  if [ "${#inside[@]}" -ne 1 ] || [ ! -d "${inside[0]}" ]; then inside=("$1"); fi
  printf '%s\\n' "${inside[0]}"
}

"""

_RUN = """if [ "$stage" = precompile ]; then
  neuron_parallel_compile "${command[@]}"
else
  "${command[@]}"
fi"""


def _bert(plan: Plan, job: BertLarge) -> Template:
    assert plan.batch is not None  # noqa: S101  made together with the plan
    numbers, tree = BERT[job.phase, job.optimizer], sources().repositories["samples"]
    fetch, data = _data(job.data, f"bert-seqlen{512 if job.phase == 2 else 128}")
    steps = job.steps or numbers.steps
    warmup = numbers.warmup_steps if job.warmup_steps is None else job.warmup_steps
    options: list[str | tuple[str, str]] = [
        ("--data_dir", '"$data"'),
        ("--output_dir", '"$output"'),
        ("--metrics_file", '"$output/results.json"'),
        *([("--optimizer", "LAMB")] if job.optimizer == "lamb" else []),
        ("--lr", _number(job.learning_rate or numbers.learning_rate)),
        *([("--warmup_steps", str(warmup))] if warmup is not None else []),
        ("--batch_size", str(plan.batch.per_worker)),
        ("--grad_accum_usteps", str(plan.batch.accumulation)),
        ("--max_steps", str(steps)),
        ("--steps_this_run", '"$steps"'),
        *(["--max_pred_len 80", "--phase2"] if job.phase == 2 else []),
        '"${resume[@]}"',
    ]
    resume = """resume=()
if [ -n "${TRN_CHECKPOINT:-}" ]; then
  resume=(--resume_ckpt --resume_ckpt_path "$TRN_CHECKPOINT")
fi"""
    before = 'TRN_CHECKPOINT=$(newest_checkpoint "$job/output")\nexport TRN_CHECKPOINT'
    if job.phase == 2:
        before += "\n" + _first_checkpoint(job.checkpoint or "")
        resume = """phase1_end=${TRN_PHASE1##*/ckpt_}
phase1_end=${phase1_end%.pt}
resume=(--resume_ckpt --resume_ckpt_path "${TRN_CHECKPOINT:-$TRN_PHASE1}" --phase1_end_step "$phase1_end")"""
    home = "" if "HF_HOME" in job.env else "export HF_HOME=$trn/hf_cache/$host\n"
    node = f"""{_tree("samples", tree)}
cd "$trn/src/samples-$samples_ref/{_BERT_FOLDER}"
data=$(only_folder {data})
steps={job.run_steps or steps}
output=$job/output
if [ "$stage" = precompile ]; then
  steps={min(_BERT_PRECOMPILE_STEPS, job.run_steps or steps)}
  output=$job/output.precompile
fi
mkdir -p "$output"
{resume}
# one download for the node's workers; without it each fetches for itself
{home}mkdir -p "$HF_HOME"
python3 -c 'from huggingface_hub import snapshot_download as get; get("bert-large-uncased")' > /dev/null 2>&1 ||
  say "the configuration of bert-large-uncased is not cached beforehand: the workers fetch it"
{_command("dp_bert_large_hf_pretrain_hdf5.py", options)}
{_RUN}"""
    prepare = f"""{_tree("samples", tree)}
source_tree samples {tree.url} "$samples_ref"
packages "samples-$samples_ref" -r "$trn/src/samples-$samples_ref/{_BERT_FOLDER}/requirements.txt"
{fetch}"""
    require = _on_cluster(job.data or "", plan)
    if job.checkpoint:
        require += _on_cluster(job.checkpoint, plan) or _written_by(job.checkpoint)
    return Template(prepare, before, node, _ONLY_FOLDER, require)


def _written_by(job: str) -> str:
    return f"""if ! compgen -G "$trn/jobs/{job}/output/ckpt_*.pt" > /dev/null; then
  die "job {job} has written no checkpoint yet. Wait for it (trn wait {job}), or name a file"
fi
"""


def _first_checkpoint(checkpoint: str) -> str:
    """Lines that set TRN_PHASE1 to the checkpoint that phase 2 starts from."""
    if checkpoint.startswith("/"):
        found = f'"${{TRN_SHARED_ROOT:-}}"{quote.word(checkpoint)}'
    else:
        found = f'$(newest_checkpoint "${{job%/*}}"/{checkpoint}/output)'
    return f"""TRN_PHASE1={found}
if [ ! -f "$TRN_PHASE1" ]; then
  say "there is no checkpoint of phase 1: $TRN_PHASE1" >&2
  exit 1
fi
export TRN_PHASE1"""


def _gpt(plan: Plan, job: Gpt3) -> Template:
    assert plan.batch is not None  # noqa: S101  made together with the plan
    tree = sources().repositories["megatron"]
    fetch, data = _data(job.data, "gpt2-wikipedia")
    steps = job.run_steps or job.steps
    decay = round(job.steps * _GPT_DECAY_STEPS / _GPT_STEPS)
    off = ("masked-softmax-fusion", "bias-gelu-fusion", "bias-dropout-fusion", "async-tensor-model-parallel-allreduce")
    options: list[str | tuple[str, str]] = [
        ("--tensor-model-parallel-size", str(job.tensor_parallel)),
        "--num-layers 32 --hidden-size 4096 --num-attention-heads 32",
        "--seq-length 2048 --max-position-embeddings 2048",
        ("--micro-batch-size", str(job.micro_batch_size)),
        ("--global-batch-size", str(plan.batch.global_size)),
        ("--train-iters", '"$steps"'),
        ("--lr-decay-iters", str(decay)),
        ("--data-path", f'"$data"/{quote.word(job.data_name)}'),
        ("--vocab-file", '"$data/gpt2-vocab.json"'),
        ("--merge-file", '"$data/gpt2-merges.txt"'),
        "--data-impl mmap --split '100,0,0' --distributed-backend xla",
        f"--lr {_number(job.learning_rate)} --min-lr {_number(job.learning_rate / 10)}",
        "--lr-decay-style cosine --lr-warmup-fraction 0.00125",
        "--weight-decay 1e-1 --clip-grad 1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006",
        "--attention-dropout 0 --hidden-dropout 0",
        "--log-interval 1 --tensorboard-log-interval 1",
        '--eval-interval "$steps" --eval-iters 1000',
        " ".join(f"--no-{name}" for name in off),
        "--no-contiguous-buffers-in-local-ddp",
        '--save-xser "$job/checkpoints" --save-interval 2000 --keep-last-checkpoint-only',
        ("--tensorboard-dir", '"$tensorboard"'),
        '"${start[@]}"',
    ]
    node = f"""{_tree("megatron", tree)}
cd "$trn/src/megatron-$megatron_ref"
data={data}
steps={steps}
tensorboard=$job/tensorboard
start=(--use-cpu-initialization)
if [ "$stage" = precompile ]; then
  steps={_GPT_PRECOMPILE_STEPS}
  tensorboard=$job/work/precompile  # losses of a run without results mean nothing
elif [ -n "${{TRN_CHECKPOINT:-}}" ]; then
  start=(--load-xser "$job/checkpoints")  # with initialization on the CPU too, the host runs out of memory
fi
mkdir -p "$tensorboard"
{_command("pretrain_gpt.py", options)}
{_RUN}"""
    prepare = f"""{_tree("megatron", tree)}
source_tree megatron {tree.url} "$megatron_ref"
packages "megatron-$megatron_ref" pybind11 regex
megatron_helpers "$trn/src/megatron-$megatron_ref"
{fetch}"""
    before = """TRN_CHECKPOINT=
if [ -s "$job/checkpoints/latest_checkpointed_iteration.txt" ]; then TRN_CHECKPOINT=latest; fi
export TRN_CHECKPOINT"""
    return Template(prepare, before, node, require=_on_cluster(job.data or "", plan))


def _script(job: Script) -> Template:
    name = quote.word(job.filename)
    if job.content.startswith(b"#!"):
        start = f'"$job/script"/{name}'
    else:
        start = f'{"python3" if job.filename.endswith(".py") else "bash"} "$job/script"/{name}'
    words = f" {quote.words(job.args)}" if job.args else ""
    node = f"""cd "$job/work"
command=({start}{words})
{_RUN}"""
    return Template("", "", node)


def _number(value: float) -> str:
    return f"{value:.10g}"
