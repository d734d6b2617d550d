"""What the job kinds run, against the recorded surface of the vendors' programs (`conformance/surfaces.yaml`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance import surfaces
from sandbox.training.fakes import bert
from trainium_cdk.client.jobs.kinds import bert_large, kinds

ROOT = Path(__file__).parents[3]
RECORDED = surfaces.load()


@pytest.mark.parametrize("kind", ["bert-large", "gpt-6.7b"])
def test_what_is_recorded_is_of_the_kinds_commit(kind: str) -> None:
    recorded, upstream = RECORDED[kind], kinds()[kind].UPSTREAM
    assert upstream is not None
    assert (upstream.repository, upstream.commit, upstream.path) == (
        recorded.repository,
        recorded.commit,
        recorded.path,
    )


def test_every_entry_of_a_repository_of_a_kind_is_of_its_commit() -> None:
    commits = {u.repository: u.commit for kind in kinds().values() if (u := kind.UPSTREAM) and u.commit}
    assert len(commits) == 2
    for name, one in RECORDED.items():
        assert one.commit == commits.get(one.repository, one.commit), name


def test_torchtitan_is_compared_with_more_than_one_release() -> None:
    """The first commit that has its options, the newest, and PyPI's; AWS's own release is not public."""
    recorded = {one.commit[:10] for name, one in RECORDED.items() if "torchtitan" in name}
    assert recorded == {"9810191bbb", "b5bcd76c66"}
    assert "torchtitan==0.3.0" in (ROOT / "conformance/requirements-torchtitan.in").read_text()
    presets = (ROOT / "constructs/trainium_cdk/description/catalog/data/torchtitan.yaml").read_text("utf-8")
    assert re.search(r"release notes of \d+\.\d+\.\d+\+neuron\.\d+ \(\d{4}-\d\d-\d\d\)", presets)


def test_the_script_uses_only_what_torch_xla_2_9_has() -> None:
    """Every release of Neuron with PyTorch/XLA training that the catalogue has is of PyTorch 2.9."""
    used = RECORDED["bert-large"].recorded["torch_xla"]
    assert len(used) >= 3
    for module, names in used.items():
        assert set(names) <= set(RECORDED[module].recorded["names"]), module


def test_the_fake_has_the_options_of_the_script_and_no_others() -> None:
    taken = {o for action in bert.parser()._actions for o in action.option_strings if o.startswith("--")} - {"--help"}
    assert taken == set(RECORDED["bert-large"].recorded["options"])


def test_packages_are_those_of_the_vendor() -> None:
    """TensorBoard alone is newer; the vendor does not pin h5py."""
    vendor = dict(line.partition("==")[::2] for line in RECORDED["bert-large-requirements"].recorded["lines"])
    ours = dict(pin.split("==") for pin in bert_large.PACKAGES.pins)
    assert ours.keys() <= vendor.keys()
    assert {name for name, version in ours.items() if version != vendor[name]} == {"tensorboard", "h5py"}


def test_the_example_image_holds_what_the_job_would_install() -> None:
    lines = (ROOT / "examples/bert-large/requirements.txt").read_text().splitlines()
    assert tuple(line for line in lines if line and not line.startswith("#")) == bert_large.PACKAGES.pins


def test_the_fake_has_the_keys_of_the_configuration_and_no_others() -> None:
    folder = ROOT / "sandbox/training/repositories/neuronx-distributed-training/examples"
    lines = (folder / "conf/megatron_gpt_config.yaml").read_text().splitlines()
    keys = [line.partition(": ")[0] for line in lines if not line.startswith("#")]
    assert keys == list(RECORDED["gpt-6.7b"].recorded["values"])
