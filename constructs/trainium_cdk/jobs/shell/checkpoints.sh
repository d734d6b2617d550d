# shellcheck shell=bash
# PyTorch's checkpoints, for a stage (stage.sh) and a pod (pod.sh); appended to either.

# Prints the newest complete ckpt_<step>.pt in a directory, if any.
newest_checkpoint() {
  local file
  if [ ! -d "$1" ]; then return 0; fi
  while read -r file; do
    if whole "$file"; then
      printf '%s\n' "$file"
      return 0
    fi
    say "$file was not written to its end: the one before it is used" >&2
  done < <(find "$1" -maxdepth 1 -name 'ckpt_*.pt' | sort -rV)
}

# PyTorch writes zip archives, whose table of contents comes last.
whole() {
  if [ ! -s "$1" ]; then return 1; fi
  if [ "$(head -c 2 "$1" | base64)" != UEs= ]; then return 0; fi
  tail -c 66000 "$1" | LC_ALL=C grep -aF $'PK\x05\x06' > /dev/null
}

# Prints the newest complete checkpoint-<step> of Hugging Face's Trainer in a directory, if any: it writes trainer_state.json last.
newest_trainer_checkpoint() {
  if [ ! -d "$1" ]; then return 0; fi
  find "$1" -mindepth 2 -maxdepth 2 -path '*/checkpoint-*/trainer_state.json' -size +0 -printf '%h\n' | sort -V | tail -n 1
}

# Deletes the other checkpoints beside one, which the training script, started again, no longer knows. Node 0 does it for all.
delete_other_checkpoints() { # file; empty: nothing to do
  if [ -z "$1" ] || [ "${NODE_RANK:-0}" != 0 ]; then return 0; fi
  find "${1%/*}" -maxdepth 1 -name 'ckpt_*.pt' ! -name "${1##*/}" -delete
}

# Deletes all checkpoints of NxD Training in a directory but the newest complete one, which has the file `done`. It resumes from the newest, complete
# or not, and never deletes the one that it resumed from. Node 0 does it for all, before any worker starts.
keep_newest_checkpoint() { # directory
  if [ ! -d "$1" ] || [ "${NODE_RANK:-0}" != 0 ]; then return 0; fi
  set -- "$1" "$(find "$1" -mindepth 2 -maxdepth 2 -path '*.ckpt/done' -printf '%T@ %h\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-)"
  find "$1" -mindepth 1 -maxdepth 1 -name '*.ckpt' ! -name "${2##*/}" -exec rm -rf {} +
}

# Prints the newest complete checkpoint of NxD Training (...step=<n>....ckpt) in a directory, if any.
newest_nxd_checkpoint() {
  if [ ! -d "$1" ]; then return 0; fi
  find "$1" -mindepth 2 -maxdepth 2 -name 'done' -printf '%h\n' | sort -V | tail -n 1
}

# Prints the newest complete step-<n> of torch.distributed.checkpoint in a directory, if any: it writes .metadata last.
newest_distributed_checkpoint() {
  if [ ! -d "$1" ]; then return 0; fi
  find "$1" -mindepth 2 -maxdepth 2 -path '*/step-*/.metadata' -size +0 -printf '%h\n' | sort -V | tail -n 1
}

# describe_checkpoints DIRECTORY KEY VALUE...: what a job that goes on from them must have in common with this one. Node 0 writes it for all.
describe_checkpoints() {
  local into=$1
  if [ "${NODE_RANK:-0}" != 0 ]; then return 0; fi
  shift
  mkdir -p "$into"
  printf '%s %s\n' "$@" > "$into/.trn-checkpoints.part"
  mv -f "$into/.trn-checkpoints.part" "$into/trn-checkpoints"
}
