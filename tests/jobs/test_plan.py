"""Numbers: global batch sizes, what was published, where fetching runs; and the launch environment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt3, Script, expected, launch_environment, plan

WIDE = make_cluster(fleet(nodes=128))
TRN2 = make_cluster(fleet("trn2.48xlarge", 16))
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
        (Gpt3(nodes=16), WIDE, 64, 1024),
        (Gpt3(nodes=4), WIDE, 64, 256),
        (Gpt3(nodes=4, tensor_parallel=8), WIDE, 64, 1024),
        (Gpt3(nodes=4, scaling="strong"), WIDE, 256, 1024),
        (Gpt3(nodes=16, scaling="strong", tensor_parallel=8), WIDE, 16, 1024),
        (Gpt3(nodes=2), TRN2, 64, 256),
    ],
)
def test_global_batch_size(job: AnyJob, cluster: Any, accumulation: int, total: int) -> None:
    batch = plan(job, cluster).batch
    assert batch is not None
    assert (batch.accumulation, batch.global_size) == (accumulation, total)


@pytest.mark.parametrize(
    ("job", "speed", "extrapolated"),
    [
        (BertLarge(), 4137.9, False),
        (BertLarge(nodes=16, optimizer="adamw"), 26069.4, False),
        (BertLarge(nodes=16, scaling="weak"), 57407.9, False),
        (BertLarge(nodes=4), 4 * 4137.9, True),
        (BertLarge(nodes=16, phase=2, checkpoint="x", scaling="weak"), 8084, False),
        (Gpt3(nodes=16), 143.75, False),
        (Gpt3(nodes=8), 143.75 / 2, True),
        (Gpt3(), 8.23, False),
    ],
)
def test_published_throughput(job: AnyJob, speed: float, extrapolated: bool) -> None:
    found = expected(plan(job, WIDE))
    assert found is not None
    assert found.sequences_per_second == pytest.approx(speed)
    assert found.extrapolated is extrapolated


def test_nothing_is_published_for_other_instances_or_scripts() -> None:
    assert expected(plan(BertLarge(), TRN2)) is None
    assert expected(plan(Script(**HELLO), WIDE)) is None


def test_fetching_runs_where_it_costs_least() -> None:
    cheap = fleet("trn1.2xlarge", 1, queue="small")
    assert plan(BertLarge(), make_cluster(fleet(), cheap)).prepare_queue == "small"
    assert plan(BertLarge(), make_cluster(fleet(), fleet(queue="other"))).prepare_queue == "compute1"
    # a capacity block of others is not there to be used
    block = cheap.model_copy(update={"purchase": "capacity-block"})
    assert plan(BertLarge(), make_cluster(fleet(), block)).prepare_queue == "compute1"


def test_a_queue_of_several_fleets_is_constrained_to_one() -> None:
    mixed = make_cluster(fleet(nodes=2, resource="a"), fleet("trn2.48xlarge", 4, resource="b"))
    assert (plan(BertLarge(nodes=2), mixed).constraint, plan(BertLarge(nodes=4), mixed).constraint) == ("a", "b")
    assert plan(BertLarge(nodes=2), WIDE).constraint is None


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
            Gpt3(nodes=2),
            {},
            {
                "NEURON_NUM_RECENT_MODELS_TO_KEEP": "3",
                "NEURON_TRANSFER_ALL_PARAMETERS_WITH_STATIC_RING": "1",
                "NEURON_FUSE_SOFTMAX": "1",
                "XLA_USE_BF16": "1",
            },
            {"BUCKET_CAP_MB", "XLA_DOWNCAST_BF16"},
        ),
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
    from trainium_cdk.catalog import Catalog, CatalogOverrides

    known = Catalog.load().release("2.30.0").model_dump(mode="json", exclude={"version"})
    old = {
        **known,
        "frameworks": {"torch-xla": {"package": "torch-neuronx", "version": "2.1.2.2.3.0", "families": ["trn1"]}},
    }
    catalog = Catalog.load(CatalogOverrides(releases={"2.20.0": old}))
    found = launch_environment(plan(BertLarge(nodes=2), WIDE.model_copy(update={"neuron_release": "2.20.0"})), catalog)
    assert found["BUCKET_CAP_MB"] == "512"
    assert found["XLA_DOWNCAST_BF16"] == "1"
    assert "ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB" not in found
