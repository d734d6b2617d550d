#!/usr/bin/env bash
# Tools: lightning 2.6.6, torch 2.15.0 (PyPI; about 5.5 GB are installed).
# Expected: in an allocation of Slurm with one task, a Trainer with `devices=2` starts two processes, or refuses.
# Seen: if `--ntasks-per-node` was not given, it trains with one process alone, and on half of the data: each of "two" takes every second sample.
# Only with `--ntasks-per-node` does it refuse, by a ValueError.
# Output: "one task: MEMBER: 1/1, 4 batches of 8"; "one task by --ntasks-per-node: ValueError".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet torch==2.15.0 lightning==2.6.6
cat >train.py <<'PROGRAM'
import torch
from lightning import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.batches = torch.nn.Linear(8, 1), 0

    def training_step(self, batch, _):
        self.batches += 1
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


model = Model()
options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", **options).fit(model, DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8))
print("batches:", model.batches)
PROGRAM
# what sbatch sets for a job of one task on one node
export SLURM_JOB_ID=7 SLURM_JOB_NAME=train SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NNODES=1
export SLURM_NODELIST=localhost SLURM_JOB_NODELIST=localhost
venv/bin/python train.py >one 2>&1
SLURM_NTASKS_PER_NODE=1 venv/bin/python train.py >two 2>&1 || true
member=$(grep -o 'MEMBER: [0-9]/[0-9]' one)
batches=$(sed -n 's/^batches: //p' one)
error=$(grep -o '^ValueError' two || true)
echo "lightning $(venv/bin/pip show lightning | sed -n 's/^Version: //p'), torch 2.15.0"
echo "one task: $member, $batches batches of 8"
echo "one task by --ntasks-per-node: ${error:-no error}"
[ "$member" = "MEMBER: 1/1" ] && [ "$batches" -eq 4 ] && [ "$error" = ValueError ]
