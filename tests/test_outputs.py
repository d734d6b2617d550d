"""The contract between stacks and jobs: what one side exports, the other reads, and nothing else is taken for it."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.support import many
from trainium_cdk import outputs, settings
from trainium_cdk.cli.common import read_cluster

ENVIRONMENTS = sorted((Path(__file__).parent / "environments").glob("*.yaml"))
LARGEST = (
    """
name: a-name-of-exactly-thirty-chars
storage:
  efs: {mount_dir: /MOUNT}
  fsx: {mount_dir: /NOUNT}
bootstrap: {venv: /MOUNT/VENV}
pcluster:
  cluster_name: CLUSTER
  queues:
    - name: q123456789012345678901234
      compute_resources: [{name: r123456789012345678901234, instance_type: trn1n.32xlarge, max_nodes: 1000000}]
""".replace("MOUNT", "m" * 99)
    .replace("NOUNT", "n" * 99)
    .replace("CLUSTER", "c" * 60)
    .replace("VENV", "v" * 200)
)


def exported(env: settings.Environment, **more: str) -> dict[str, str]:
    values = {"head_node_id": "i-0123456789abcdef0", "bucket": "trn-bucket"} | more
    return {key: value for key, (value, _) in outputs.slurm_outputs(env, **values).items()}


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda f: f.stem)
def test_round_trip(file: Path) -> None:
    env = settings.load(file)
    uri = "" if not env.registry.enabled else "111122223333.dkr.ecr.us-east-1.amazonaws.com/trn"
    cluster = outputs.parse("Stack", env.region, exported(env, registry_uri=uri))
    assert isinstance(cluster, outputs.SlurmCluster)
    assert (cluster.stack, cluster.region, cluster.registry_uri) == ("Stack", env.region, uri)
    assert cluster.cluster_name == env.cluster_name
    assert cluster.mount_dirs == env.storage.mount_dirs
    assert cluster.shared_dir == env.storage.shared_dir
    assert cluster.neuron_release == env.release.version
    assert cluster.queues == tuple(q.name for q in env.pcluster.queues)
    for queue in env.pcluster.queues:
        found = cluster.queue(queue.name)
        assert [(f.resource, f.instance_type, f.nodes) for f in found] == [
            (r.name, r.instance_type, r.max_nodes) for r in queue.compute_resources
        ]
        for fleet, resource in zip(found, queue.compute_resources, strict=True):
            kind = env.catalog.instance(fleet.instance_type)
            assert fleet.cores == kind.logical_cores()
            assert fleet.devices == kind.neuron_devices
            assert fleet.efa == (0 if resource.efa == "off" else kind.efa_interfaces)
            assert fleet.capacity_type == queue.capacity_type
    assert cluster.queue() == cluster.queue(env.pcluster.queues[0].name)


@pytest.mark.parametrize("text", [LARGEST, *(f.read_text("utf-8") for f in ENVIRONMENTS)])
def test_outputs_fit_cloudformation(text: str) -> None:
    """Names of letters and digits, values of 1 to 1,024 bytes, at most 200 of them, each described."""
    found = outputs.slurm_outputs(settings.parse(text), head_node_id="i-0123456789abcdef0", bucket="b" * 63)
    assert len(found) <= 200
    for key, (value, description) in found.items():
        assert re.fullmatch(r"[A-Za-z0-9]{1,255}", key)
        assert 1 <= len(value.encode()) <= 1024, key
        assert 1 <= len(description) <= 1024


def test_many_fleets_keep_their_order() -> None:
    queues = ", ".join(f"{{name: q{i}}}" for i in range(12))
    found = exported(settings.parse(f"pcluster: {{queues: [{queues}]}}"))
    shuffled = dict(sorted(found.items()))  # as text, Fleet10 comes before Fleet2
    cluster = outputs.parse("Stack", "us-east-1", shuffled)
    assert cluster.queues == tuple(f"q{i}" for i in range(12))


def test_outputs_of_a_newer_release_with_more_keys_are_read() -> None:
    found = exported(settings.Environment())
    fleet = json.loads(found["Fleet0"]) | {"colour": "blue"}
    more = found | {"Colour": "blue", "Fleet0": json.dumps(fleet), "FleetOwner": "me"}
    assert outputs.parse("S", "us-east-1", more) == outputs.parse("S", "us-east-1", found)


GOOD = exported(settings.Environment())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({}, "stack S is not one of trainium-cdk: it has no output TrnContract. Name another stack"),
        ({"VpcId": "vpc-1"}, "it has no output TrnContract"),
        (GOOD | {"TrnContract": "0"}, "speaks contract 0; this one speaks 1. Deploy the stack again"),
        (GOOD | {"TrnContract": ""}, "speaks contract"),
        (GOOD | {"TrnEngine": "batch"}, "stack S runs 'batch', which this release of `trn` does not know"),
        ({k: v for k, v in GOOD.items() if k != "TrnEngine"}, "stack S runs None"),
        ({k: v for k, v in GOOD.items() if k != "HeadNodeId"}, "head_node_id: Field required. Deploy the stack again"),
        ({k: v for k, v in GOOD.items() if k != "ClusterName"}, "cluster_name: Field required"),
        ({k: v for k, v in GOOD.items() if k != "Fleet0"}, "fleets"),
        (GOOD | {"Fleet0": "{"}, "the outputs of stack S cannot be read"),
        (GOOD | {"Fleet0": "[]"}, "the outputs of stack S cannot be read"),
        (GOOD | {"Fleet0": '{"queue": "a"}'}, "resource: Field required"),
        (GOOD | {"Fleet0": GOOD["Fleet0"].replace('"nodes":16', '"nodes":"many"')}, "nodes: Input should be a valid integer"),
    ],
)  # fmt: skip
def test_invalid_outputs_are_refused(bad: dict[str, str], message: str) -> None:
    with pytest.raises(outputs.OutputsError) as caught:
        outputs.parse("S", "us-east-1", bad)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


KEYS = st.sampled_from(sorted(GOOD)) | st.text(max_size=20) | st.from_regex(r"Fleet[0-9]{0,6}", fullmatch=True)
VALUES = st.text(max_size=60) | st.sampled_from(["-", "", "{}", "[]", "null", "slurm", "eks", GOOD["Fleet0"]])


@hypothesis_settings(max_examples=many(300))
@given(other=st.dictionaries(KEYS, VALUES, max_size=4), missing=st.sets(st.sampled_from(sorted(GOOD)), max_size=2))
def test_any_outputs_are_a_cluster_or_an_error(other: dict[str, str], missing: set[str]) -> None:
    found = {k: v for k, v in (GOOD | other).items() if k not in missing}
    try:
        cluster = outputs.parse("S", "us-east-1", found)
    except outputs.OutputsError as e:
        error_text = str(e)
    else:
        assert outputs.parse("S", "us-east-1", found) == cluster
        assert cluster.queue() == cluster.queue(cluster.queues[0])
        return
    assert "stack S" in error_text
    assert len(error_text.splitlines()) == 1


@hypothesis_settings(max_examples=many(200))
@given(data=st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["engine", "stack", "fleets"]) | st.text(max_size=5), inner),
    max_leaves=8,
).map(lambda data: json.dumps(data).encode()))  # fmt: skip
def test_any_file_is_a_cluster_or_an_error(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        with pytest.raises(outputs.OutputsError, match="does not describe a cluster"):
            read_cluster(Path(file.name))


def test_an_unknown_queue() -> None:
    cluster = outputs.parse("S", "us-east-1", GOOD)
    with pytest.raises(outputs.OutputsError, match="S has no queue 'gpu'; it has compute1"):
        cluster.queue("gpu")
