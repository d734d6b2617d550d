"""The tutorials' data sets in the local AWS, and how a virtual node fetches them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sandbox import LocalAws, datasets
from sandbox.slurm import LocalSlurm
from sandbox.testing import need_slurm
from sandbox.training.fakes.nxdt import IndexedText
from sandbox.training.fakes.trainer import TrainingFailed

pytestmark = pytest.mark.sweep

BERT_KEY = (
    "training_datasets/bert_pretrain_wikicorpus_tokenized_hdf5/bert_pretrain_wikicorpus_tokenized_hdf5_seqlen128.tar"
)


def test_the_text_is_always_the_same_and_worth_learning() -> None:
    generated = datasets.text(5000, seed=1)
    assert generated == datasets.text(5000, seed=1) != datasets.text(5000, seed=2)
    assert generated.isascii()
    assert generated.count(b" ") > 700


def test_the_gpt_files_are_a_megatron_data_set(tmp_path: Path) -> None:
    for name, content in datasets.gpt_files().items():
        (tmp_path / name).write_bytes(content)
    read = IndexedText(str(tmp_path / "my-gpt2_text_document"))
    assert read.block(0, 2000) == datasets.text(2000, seed=2000)
    whole = tmp_path / "my-gpt2_text_document.bin"
    whole.write_bytes(whole.read_bytes()[:-2])
    with pytest.raises(TrainingFailed, match=r"its index has .* download it again"):
        IndexedText(str(tmp_path / "my-gpt2_text_document"))


def test_a_node_fetches_a_data_set_whole_and_in_parts(local_aws: LocalAws, tmp_path: Path) -> None:
    need_slurm()
    addresses = datasets.seed_datasets(local_aws.client("s3"))
    assert f"s3://neuron-s3/{BERT_KEY}" in addresses
    assert "s3://models.huggingface.co/bert/gpt2-vocab.json" in addresses
    resource = {"Name": "trn", "InstanceType": "trn1.32xlarge", "MaxCount": 1}
    queue = {"Name": "q", "ComputeResources": [resource]}
    aws = {key: value for key, value in local_aws.env.items() if key.startswith("AWS_")}
    with LocalSlurm.start(tmp_path, {"Scheduling": {"SlurmQueues": [queue]}}, environment=aws) as slurm:
        script = f"""
        size=$(aws s3api head-object --no-sign-request --bucket neuron-s3 --key {BERT_KEY} --query ContentLength)
        half=$((size / 2))
        for part in 0-$((half - 1)) $half-$((size - 1)); do
          aws s3api get-object --no-sign-request --bucket neuron-s3 --key {BERT_KEY} --range bytes=$part part >/dev/null
          cat part >>whole.tar
        done
        aws s3 cp --no-sign-request --only-show-errors s3://neuron-s3/{BERT_KEY} copy.tar
        cmp whole.tar copy.tar && tar -xf whole.tar && ls bert_* | wc -l
        aws s3 cp --no-sign-request --only-show-errors s3://models.huggingface.co/bert/gpt2-merges.txt -
        """
        (tmp_path / "home" / "fetch.sh").write_text(script)
        done = slurm.run(["srun", "-N1", "bash", "-e", "fetch.sh"])
    assert done.stdout.split("\n")[:2] == ["2048", "#version: 0.2"], done.stderr


def test_a_tar_unpacks_to_the_vendors_names() -> None:
    with tarfile.open(fileobj=io.BytesIO(datasets.bert_tar(512, shards=3))) as tar:
        folder = "bert_pretrain_wikicorpus_tokenized_hdf5_seqlen512"
        assert tar.getnames() == [f"{folder}/wikicorpus_en_training_{i}.hdf5" for i in range(3)]


def test_they_are_there_in_any_region(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 creates a bucket in another region than us-east-1 only if the request names the region."""
    monkeypatch.setattr(datasets, "objects", lambda: [("data-of-another-region", "key", b"content")])
    client = local_aws.client("s3", "eu-west-1")
    assert datasets.seed_datasets(client) == ["s3://data-of-another-region/key"]
    assert client.get_bucket_location(Bucket="data-of-another-region")["LocationConstraint"] == "eu-west-1"
    client.delete_object(Bucket="data-of-another-region", Key="key")
    client.delete_bucket(Bucket="data-of-another-region")
