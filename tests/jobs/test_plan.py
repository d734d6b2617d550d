"""Numbers: global batch sizes, steps, prices, where fetching runs; and the launch environment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.client.jobs.plan import hour_usd, plan
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.constants import ULTRASERVER
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import AnyJob, BertLarge, Finetune, Gpt, Script, TorchTitan, launch_environment

WIDE = make_cluster(fleet(nodes=128))
TRN2 = make_cluster(fleet("trn2.48xlarge", 16))
SDK_2_28 = WIDE.model_copy(update={"neuron_release": "2.28.1"})
ONE = make_cluster(fleet("trn1.2xlarge", 1))
HELLO = {"filename": "hello.sh", "content": b"echo hello\n"}


@pytest.mark.parametrize(
    ("job", "cluster", "accumulation", "total"),
    [
        (BertLarge(), WIDE, 128, 65536),
        (BertLarge(nodes=16), WIDE, 8, 65536),
        (BertLarge(nodes=128), WIDE, 1, 65536),
        (BertLarge(nodes=16, scaling="weak"), WIDE, 128, 1048576),
        (BertLarge(nodes=16, optimizer="adamw"), WIDE, 2, 16384),
        (BertLarge(nodes=4, phase=2, checkpoint="x"), WIDE, 128, 32768),
        (BertLarge(nodes=3, accumulation=6, batch_size=8), WIDE, 2, 1536),
        (BertLarge(nodes=2), TRN2, 64, 131072),
        (BertLarge(), ONE, 128, 4096),
        (Gpt(), SDK_2_28, 256, 1024),
        (Gpt(nodes=16), SDK_2_28, 16, 1024),
        (Gpt(nodes=4, tensor_parallel=32, global_batch_size=512), SDK_2_28, 128, 512),
    ],
)
def test_global_batch_size(job: AnyJob, cluster: Any, accumulation: int, total: int) -> None:
    batch = plan(job, cluster).batch
    assert batch is not None
    assert (batch.accumulation, batch.global_size) == (accumulation, total)


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        (BertLarge(), 7032),
        (BertLarge(run_steps=50), 50),
        (BertLarge(optimizer="adamw", steps=30_000), 30_000),
        (Gpt(data="/efs/data"), 20_000),
        (TorchTitan(preset="qwen3-8b", ref="a" * 40), 10_000),
        (Finetune(model="Qwen/Qwen3-8B"), None),
        (Script(**HELLO), None),
    ],
)
def test_the_steps_of_each_kind(job: AnyJob, steps: int | None) -> None:
    assert job.total_steps == steps


def test_what_the_nodes_cost_in_an_hour() -> None:
    known = Catalog.load()
    assert hour_usd(plan(BertLarge(nodes=2), WIDE), known) == 2 * 21.50
    assert hour_usd(plan(BertLarge(), make_cluster(fleet(capacity_type="capacity-block"))), known) is None


def test_warnings_before_a_job_runs() -> None:
    [trn2] = plan(BertLarge(), TRN2).notes
    assert "the global batch size is 131072, not the documented 65536" in trn2
    assert "trn2.48xlarge has 64 workers, not 32" in trn2
    assert plan(BertLarge(accumulation=64), TRN2).notes == ()
    ultra = make_cluster(fleet("trn2.48xlarge", 4, instance_type="trn2u.48xlarge", ultraserver=4))
    [neuronlink] = plan(Script(nodes=2, **HELLO), ultra).notes
    assert neuronlink == ULTRASERVER
    [size, dropout] = plan(Gpt(), SDK_2_28).notes
    assert size == "each checkpoint has about 188 GB; the newest is kept"
    assert "repeats the random numbers of its first steps for dropout" in dropout
    [phase_2] = plan(BertLarge(phase=2, checkpoint="x"), WIDE).notes
    assert "restores neither the optimizer's state nor the learning rate's schedule" in phase_2


def test_fetching_runs_where_it_costs_least() -> None:
    cheap = fleet("trn1.2xlarge", 1, queue="small")
    assert plan(BertLarge(), make_cluster(fleet(), cheap)).prepares_on.queue == "small"
    assert plan(BertLarge(), make_cluster(fleet(), fleet(queue="other"))).prepares_on.queue == "compute1"
    # a capacity block of others is not there to be used
    block = cheap.model_copy(update={"capacity_type": "capacity-block"})
    assert plan(BertLarge(), make_cluster(fleet(), block)).prepares_on.queue == "compute1"
    assert plan(BertLarge(), make_cluster(fleet(), cheap, cpu=make_cluster().cpu)).prepares_on.queue == "cpu"


def test_a_job_may_use_all_nodes_of_its_type_in_the_queue() -> None:
    """For example a reservation, and on-demand nodes after it."""
    other = fleet("trn2.48xlarge", 4, resource="b")
    mixed = make_cluster(fleet(nodes=2, resource="a"), other)
    assert (plan(BertLarge(nodes=2), mixed).constraint, plan(BertLarge(nodes=4), mixed).constraint) == ("a", "b")
    assert plan(BertLarge(nodes=2), WIDE).constraint is None
    alike = fleet(nodes=2, resource="reserved"), fleet(nodes=8, resource="free")
    assert plan(BertLarge(nodes=8), make_cluster(*alike)).constraint is None
    assert plan(BertLarge(nodes=2), make_cluster(*alike, other)).constraint == "reserved|free"
    without_efa = fleet(nodes=2, resource="slow", efa=0)
    assert plan(BertLarge(nodes=2), make_cluster(*alike, without_efa)).constraint == "reserved|free"
    chosen = plan(BertLarge(nodes=2, compute_resource="free"), make_cluster(*alike))
    assert (chosen.constraint, chosen.fleet.resource) == ("free", "free")
    with pytest.raises(JobError, match=r"nodes is 11, but queue compute1 has at most 10 of trn1\.32xlarge"):
        plan(BertLarge(nodes=11), make_cluster(*alike))
    with pytest.raises(JobError, match="nodes is 3, but queue compute1 has at most 2"):
        plan(BertLarge(nodes=3, compute_resource="reserved"), make_cluster(*alike))
    with pytest.raises(JobError, match=r"no compute resource odd; it has reserved, free\. Choose one"):
        plan(BertLarge(compute_resource="odd"), make_cluster(*alike))


@pytest.mark.parametrize(
    ("job", "changes", "there", "absent"),
    [
        (
            BertLarge(nodes=2),
            {},
            {
                "FI_PROVIDER": "efa",
                "FI_EFA_USE_DEVICE_RDMA": "1",
                "ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB": "512",
                "NEURON_RT_STOCHASTIC_ROUNDING_EN": "1",
                "NEURON_RT_EXEC_TIMEOUT": "600",
                "MASTER_PORT": "2022",
            },
            {"FI_EFA_FORK_SAFE", "BUCKET_CAP_MB", "XLA_DOWNCAST_BF16", "XLA_USE_DUMMY_STORE", "NEURON_FUSE_SOFTMAX"},
        ),
        (BertLarge(nodes=2), {"kernel": "5.10"}, {"FI_EFA_FORK_SAFE": "1"}, set()),
        (BertLarge(nodes=2), {"kernel": "5.15"}, {}, {"FI_EFA_FORK_SAFE"}),
        (BertLarge(), {"kernel": "5.10"}, {}, {"FI_PROVIDER", "FI_EFA_FORK_SAFE"}),
        (BertLarge(nodes=2), {"fleets": (fleet(efa=8, nodes=2),)}, {"FI_PROVIDER": "efa"}, set()),
        (BertLarge(phase=2, checkpoint="x"), {}, {"MASTER_PORT": "2023"}, set()),
        (BertLarge(nodes=64), {}, {"XLA_USE_DUMMY_STORE": "1", "TORCH_DIST_INIT_BARRIER": "0"}, set()),
        (
            BertLarge(),
            {"neuron_release": "3.99.0"},
            {"ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB": "512"},
            {"XLA_DOWNCAST_BF16"},
        ),
        (
            Gpt(nodes=2),
            {"neuron_release": "2.28.1"},
            {"HYDRA_FULL_ERROR": "1", "XLA_DISABLE_FUNCTIONALIZATION": "0"},
            {"BUCKET_CAP_MB", "XLA_DOWNCAST_BF16", "XLA_USE_BF16"},  # its own configuration sets them
        ),
        (BertLarge(), {}, {"HF_HUB_OFFLINE": "1"}, {"HF_HOME"}),
        (BertLarge(env={"HF_HOME": "/efs/hf"}), {}, {"HF_HOME": "/efs/hf"}, {"HF_HUB_OFFLINE"}),
        (Script(nodes=64, **HELLO), {"framework": "torch-native"}, {}, {"XLA_USE_DUMMY_STORE"}),
        (
            Script(env={"MASTER_PORT": "7", "A": "b c"}, **HELLO),
            {},
            {"MASTER_PORT": "7", "A": "b c"},
            {"FI_PROVIDER", "NEURON_RT_STOCHASTIC_ROUNDING_EN"},
        ),
    ],
)
def test_launch_environment(job: AnyJob, changes: dict[str, Any], there: dict[str, str], absent: set[str]) -> None:
    found = launch_environment(plan(job, WIDE.model_copy(update=changes)))
    assert {k: found.get(k) for k in there} == there
    assert not absent & found.keys()


def test_an_older_torch_has_its_own_names() -> None:
    from trainium_cdk.description.catalog import Catalog, CatalogOverrides

    known = Catalog.load().release("2.30.0").model_dump(mode="json", exclude={"version"})
    old = {
        **known,
        "frameworks": {"torch-xla": {"package": "torch-neuronx", "version": "2.1.2.2.3.0", "families": ["trn1"]}},
    }
    catalog = Catalog.load(CatalogOverrides(releases={"2.28.9": old}))
    found = launch_environment(plan(BertLarge(nodes=2), WIDE.model_copy(update={"neuron_release": "2.28.9"})), catalog)
    assert found["BUCKET_CAP_MB"] == "512"
    assert found["XLA_DOWNCAST_BF16"] == "1"
    assert "ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB" not in found
