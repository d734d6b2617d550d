#!/usr/bin/env bash
# Tool: wandb 0.31.0 (PyPI), offline.
# Expected: an empty variable such as `WANDB_RUN_ID=` counts as none, as people switch one off that a launcher sets.
# Seen: an empty WANDB_NAME or WANDB_RUN_GROUP counts as none. An empty WANDB_RUN_ID, WANDB_RESUME or WANDB_SILENT is an error of `wandb.init`.
# Output: "empty: WANDB_NAME ok, WANDB_RUN_GROUP ok, WANDB_RUN_ID UsageError, WANDB_RESUME ValidationError, WANDB_SILENT ValidationError".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet wandb==0.31.0
cat >run.py <<'PROGRAM'
import wandb

try:
    run = wandb.init(mode="offline", project="p")
except Exception as e:
    print(type(e).__name__)
else:
    run.finish()
    print("ok")
PROGRAM
ends() {
    env "$1=" venv/bin/python run.py 2>/dev/null | tail -1
}
found=
for name in WANDB_NAME WANDB_RUN_GROUP WANDB_RUN_ID WANDB_RESUME WANDB_SILENT; do
    found="$found$name $(ends "$name"), "
done
echo "wandb $(venv/bin/pip show wandb | sed -n 's/^Version: //p')"
echo "empty: ${found%, }"
[ "$found" = "WANDB_NAME ok, WANDB_RUN_GROUP ok, WANDB_RUN_ID UsageError, WANDB_RESUME ValidationError, WANDB_SILENT ValidationError, " ]
