"""Submissions to an EKS cluster that cannot work: each is refused with the value and the fix, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.jobs.kubernetes.conftest import fleet, make_cluster
from trainium_cdk.client.jobs.kubernetes import Api, KubernetesBackend
from trainium_cdk.client.jobs.kubernetes.objects import text
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.jobs import BertLarge, Finetune, Gpt, JobError, Script, SlurmBackend, TorchTitan


def never() -> Api:
    """The way to a cluster that nothing may go."""
    raise AssertionError("something was sent")


TUTORIAL = make_cluster()
LARGE = make_cluster(fleet(nodes=256))
SMALL = make_cluster(fleet("trn1.2xlarge", 4))
TWO = make_cluster(fleet(nodes=2, resource="one"), fleet("trn2.48xlarge", 4, resource="two"))
BARE = make_cluster(image="")
NATIVE = make_cluster(framework="torch-native")
TRN2 = make_cluster(fleet("trn2.48xlarge"), framework="torch-native")
TORCHNEURON = TRN2.model_copy(update={"image": "", "neuron_release": "2.33.0", "neuron_driver": "2.31.7.0"})
XLA = make_cluster(fleet("trn2.48xlarge"), neuron_driver="2.28.0.0")
OWN = "111122223333.dkr.ecr.us-east-2.amazonaws.com/trn:src-0123456789abcdef"
HELLO: dict[str, Any] = {"filename": "hello.sh", "content": b"echo hello\n"}

CASES: list[tuple[str, EksCluster, Callable[[], Any], str]] = [
    ("more than the fleet", TUTORIAL, lambda: BertLarge(nodes=4), r"nodes is 4, but queue trn has at most 2 of trn1.32xlarge.*max_nodes of node group trn"),
    ("3 nodes", LARGE, lambda: BertLarge(nodes=3), r"128 does not divide by 3.*Use 1, 2, 4,.* or --scaling weak"),
    ("LAMB beyond 128", LARGE, lambda: BertLarge(nodes=256, accumulation=256), r"up to 128 nodes.*--scaling weak"),
    ("several without EFA", SMALL, lambda: Script(nodes=2, **HELLO), r"trn1.2xlarge in queue trn has no EFA.*--nodes 1"),
    ("no such queue", TUTORIAL, lambda: BertLarge(queue="compute1"), r"no queue 'compute1'; it has trn.*--queue"),
    ("no such type", TUTORIAL, lambda: BertLarge(instance_type="trn2.48xlarge"), r"has no trn2.48xlarge; it has trn1.32xlarge"),
    ("a type with too few", TWO, lambda: BertLarge(nodes=4, instance_type="trn1.32xlarge"), r"at most 2 of trn1.32xlarge.*node group one"),
    ("tensor parallelism", SMALL, lambda: Gpt(image="x/y:z"), r"tensor_parallel is 8; .*2 NeuronCores of trn1.2xlarge"),
    ("no image", BARE, lambda: BertLarge(), r"no container image: the catalogue has none of Neuron SDK 2\.28\.1.*trn image build DIR.*--image"),
    ("no image of TorchNeuron", TORCHNEURON, lambda: Finetune(), r"none of Neuron SDK 2\.33\.0 for training\. Build one \(trn image build torchneuron\), and give the name"),
    (
        "an image of one's own on nodes with an older driver", XLA, lambda: Finetune(image=OWN),
        r"image is 111122223333.*, and finetune runs with Neuron SDK 2\.33\.0, whose runtime 2\.35\.30\.0 is for driver 2\.31\.7\.0, but the nodes of "
        r"\S+ have driver 2\.28\.0\.0 \(for torch-xla\)\. Deploy with `bootstrap: \{framework: torch-native, neuron_release: 2\.33\.0\}`",
    ),
    (
        "an image of one's own on nodes with a newer driver", make_cluster(neuron_driver="2.29.0.0"), lambda: Gpt(image=OWN),
        r"gpt-6\.7b runs with Neuron SDK 2\.28\.1, whose runtime 2\.30\.51\.0 is for driver \S+, but .* have driver 2\.29\.0\.0",
    ),
    (
        "an image of another framework", TRN2, lambda: TorchTitan(ref="0" * 40, preset="qwen3-8b", image=Catalog.load().release("2.28.1").container),
        r"image is public.*sdk2\.28\.0.*, which has torch-xla, but torchtitan needs torch-native. Use another image",
    ),
    ("no image for a script", BARE, lambda: Script(**HELLO), r"no container image"),
    ("framework native", NATIVE, lambda: BertLarge(), r"bert-large needs framework torch-xla, .*have torch-native"),
    ("precompile without torch-xla", NATIVE, lambda: Script(precompile=True, **HELLO), r"precompiling needs torch-xla"),
    ("no name of an image", TUTORIAL, lambda: BertLarge(image="my image"), r"image is 'my image': not in the right format. Write the name of a container image"),
    ("a cache set of the shell", TUTORIAL, lambda: BertLarge(cache="a/b"), r"cache is 'a/b': not in the right format"),
    ("a long name", TUTORIAL, lambda: BertLarge(name="a" * 40), r"the job's name is a{40}-some-long-token.*at most 44 are allowed.*--name or --token"),
    ("env of a Job", TUTORIAL, lambda: Script(env={"JOB_COMPLETION_INDEX": "0"}, **HELLO), r"env JOB_COMPLETION_INDEX: it is set automatically for each pod"),
    ("env of Kubernetes", TUTORIAL, lambda: Script(env={"KUBERNETES_SERVICE_HOST": "x"}, **HELLO), r"env KUBERNETES_SERVICE_HOST: it is set automatically for each pod"),
    ("env of the rendezvous", TUTORIAL, lambda: Script(env={"MASTER_ADDR": "x"}, **HELLO), r"env MASTER_ADDR"),
    ("env of Slurm", TUTORIAL, lambda: Script(env={"SLURM_NTASKS": "1"}, **HELLO), r"env SLURM_NTASKS"),
    ("a script too large", TUTORIAL, lambda: Script(filename="x.bin", content=b"#!" + bytes(range(256)) * 4000), r"the job and its files have 1,3\d\d,\d\d\d bytes as JSON.*allows 1,000,000.*shared file system.*trn image build"),
    ("an empty script", TUTORIAL, lambda: Script(filename="x.sh", content=b" \n"), r"the script x.sh is empty"),
    ("phase 2 from nothing", TUTORIAL, lambda: BertLarge(phase=2), r"phase 2 starts from a checkpoint.*--checkpoint"),
    ("time in words", TUTORIAL, lambda: BertLarge(time_limit="2 days"), r"time_limit is '2 days'"),
    ("no time", TUTORIAL, lambda: BertLarge(time_limit="0"), r"time_limit is '0': it must be at least 1 minute"),
    ("NUL in an argument", TUTORIAL, lambda: Script(args=("a\0b",), **HELLO), r"NUL byte"),
]  # fmt: skip


@pytest.mark.parametrize(("cluster", "job", "message"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_is_refused(cluster: EksCluster, job: Callable[[], Any], message: str) -> None:
    with pytest.raises(JobError, match=message) as error:
        KubernetesBackend(cluster, never).submit(job(), "some-long-token")
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 600
    assert text[-1] != "."


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"image": "x/y:1"}, r"image is x/y:1, but TrnPclusterStack runs Slurm, which starts no containers. Remove it"),
        (
            {"priority": "high"},
            r"priority is high, but TrnPclusterStack runs Slurm, which has no priority classes.*Remove it",
        ),
    ],
)
def test_slurm_takes_no_image_and_no_priority(field: dict[str, str], message: str) -> None:
    from tests.jobs.conftest import make_cluster as slurm_cluster

    class Silent:
        interval = 0.0

        def run(self, script: str, timeout: float = 120) -> Any:
            raise AssertionError(script)

    with pytest.raises(JobError, match=message):
        SlurmBackend(slurm_cluster(), Silent()).submit(BertLarge(**field), "t")


def test_with_an_own_image_the_nodes_framework_does_not_matter() -> None:
    backend = KubernetesBackend(NATIVE, never)
    made = backend.render(BertLarge(image="x/y:1"), "t")
    assert "x/y:1" in text(made)


@pytest.mark.parametrize(
    ("cluster", "job"),
    [
        (TORCHNEURON, Finetune(image=OWN)),
        (TORCHNEURON, BertLarge(image=OWN)),  # with Neuron 2.31, whose runtime has this driver
        (XLA.model_copy(update={"neuron_driver": ""}), Finetune(image=OWN)),  # nodes with an image of the user's own
        (XLA, BertLarge(image=OWN)),
    ],
)
def test_an_image_of_ones_own_fits_the_nodes_driver(cluster: EksCluster, job: BertLarge | Finetune) -> None:
    backend = KubernetesBackend(cluster, never)
    assert OWN in text(backend.render(job, "t"))
