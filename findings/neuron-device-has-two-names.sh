#!/usr/bin/env bash
# Tools: torchx 0.7.0, sagemaker-hyperpod 3.12.0, skypilot 0.14.1 (PyPI).
# Expected: tools that ask Kubernetes for whole Trainium devices use one resource name.
# Seen: TorchX and HyperPod's CLI request `aws.amazon.com/neurondevice`, SkyPilot `aws.amazon.com/neuron`. A cluster that announces one of the
# names never starts the pods of the other tools.
# Output: one line a tool, for a trn1.32xlarge.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for tool in torchx==0.7.0 sagemaker-hyperpod==3.12.0 'skypilot[kubernetes]==0.14.1'; do
    name=${tool%%[=\[]*}
    python3 -m venv "$name"
    "$name/bin/pip" install --quiet "$tool"
done
export HOME=$folder

{
torchx/bin/python - <<'PROGRAM'
from torchx.specs import named_resources

devices = named_resources["aws_trn1.32xlarge"].devices
print("torchx:", *sorted(f"{name} {count}" for name, count in devices.items()))
PROGRAM
sagemaker-hyperpod/bin/python -W ignore - <<'PROGRAM' 2>/dev/null | grep '^hyperpod'
from hyperpod_pytorch_job_template.registry import SCHEMA_REGISTRY
from sagemaker.hyperpod.training.hyperpod_pytorch_job import HyperPodPytorchJob

job = SCHEMA_REGISTRY["1.1"](job_name="j", image="a/b:c", instance_type="ml.trn1.32xlarge", node_count=2).to_domain()
made = HyperPodPytorchJob.allocate_quotas_if_applicable(job)
limits = made.replicaSpecs[0].template.spec.containers[0].resources.limits
print("hyperpod:", *sorted(f"{name} {count}" for name, count in limits.items() if "." in name))
PROGRAM
skypilot/bin/python - <<'PROGRAM' 2>/dev/null
from sky.provision.kubernetes import utils

assert utils.is_neuron_accelerator("Trainium")
print("skypilot:", utils.NEURON_RESOURCE_KEY)
PROGRAM
} >seen
cat seen
diff seen - <<'EXPECTED'
torchx: aws.amazon.com/neurondevice 16 vpc.amazonaws.com/efa 8
hyperpod: aws.amazon.com/neurondevice 16 vpc.amazonaws.com/efa 8
skypilot: aws.amazon.com/neuron
EXPECTED
