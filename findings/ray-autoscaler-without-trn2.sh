#!/usr/bin/env bash
# Tool: ray 2.58.0 (PyPI).
# Expected: Ray's autoscaler on EC2 knows the NeuronCores of each Trainium type that AWS sells.
# Seen: it knows those of trn1 and trn1n. For trn2 it has none, so a task that asks for `neuron_cores` starts no such node.
# Output: "trn1.32xlarge 32, trn2.48xlarge None, trn2.3xlarge None".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet ray==2.58.0
venv/bin/python - <<'PROGRAM'
import ray
from ray._private.accelerators.neuron import NeuronAcceleratorManager as Neuron

found = {name: Neuron.get_ec2_instance_num_accelerators(name, {}) for name in ("trn1.32xlarge", "trn2.48xlarge", "trn2.3xlarge")}
print("ray", ray.__version__)
print(", ".join(f"{name} {count}" for name, count in found.items()))
assert found == {"trn1.32xlarge": 32, "trn2.48xlarge": None, "trn2.3xlarge": None}
PROGRAM
