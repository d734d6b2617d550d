"""What the job kinds run, against the recorded surface of the vendors' programs (`conformance/surfaces.yaml`)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance import surfaces
from sandbox.training.fakes import bert
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt, LlamaNxd, kinds, render
from trainium_cdk.jobs.kinds import bert_large

ROOT = Path(__file__).parents[3]
RECORDED = surfaces.load()
JOBS: dict[str, list[AnyJob]] = {
    "llama3.1-8b": [LlamaNxd(data="/efs/wikicorpus")],
    "bert-large": [BertLarge(), BertLarge(phase=2, checkpoint="x"), BertLarge(optimizer="adamw", warmup_steps=3)],
}


def options(job: AnyJob) -> set[str]:
    """The options that a job's node script gives to the vendor's program."""
    text = render(job, make_cluster(fleet(), neuron_release="2.28.1"), "t").files["node.sh"].decode()
    command = text.partition("command=(\n")[2].partition("\n)")[0]
    lines = command.splitlines()
    program = next(
        i for i, line in enumerate(lines) if re.fullmatch(r"\s+(\"\$job/script/launch\.py\" [\w,]+ )?[\w/]+\.py", line)
    )
    resume = re.findall(r"^ *(?:resume|checkpoints)=\([^)]*", text, re.MULTILINE)
    return set(re.findall(r"--[\w-]+", "\n".join([*lines[program:], *resume])))


@pytest.mark.parametrize("kind", JOBS)
def test_options_exist_at_the_pinned_commit(kind: str) -> None:
    recorded = RECORDED[kind]
    upstream = kinds()[kind].UPSTREAM
    assert upstream is not None
    assert (upstream.repository, upstream.commit, upstream.path) == (
        recorded.repository,
        recorded.commit,
        recorded.path,
    )
    for job in JOBS[kind]:
        given = options(job)
        assert len(given) > 5
        assert given <= set(recorded.recorded["options"]), job


@pytest.mark.parametrize("kind", JOBS)
def test_scripts_use_only_what_torch_xla_2_9_has(kind: str) -> None:
    """Every release of Neuron with PyTorch/XLA training that the catalogue has is of PyTorch 2.9."""
    used = RECORDED[kind].recorded["torch_xla"]
    assert len(used) >= 3
    for module, names in used.items():
        assert set(names) <= set(RECORDED[module].recorded["names"]), module


def test_the_fake_has_the_options_of_the_script_and_no_others() -> None:
    taken = {o for action in bert.parser()._actions for o in action.option_strings if o.startswith("--")} - {"--help"}
    assert taken == set(RECORDED["bert-large"].recorded["options"])


def test_packages_are_those_of_the_vendor() -> None:
    """TensorBoard alone is newer; the vendor does not pin h5py."""
    vendor = dict(line.partition("==")[::2] for line in RECORDED["bert-large-requirements"].recorded["lines"])
    ours = dict(pin.split("==") for pin in bert_large.PACKAGES)
    assert ours.keys() <= vendor.keys()
    assert {name for name, version in ours.items() if version != vendor[name]} == {"tensorboard", "h5py"}


def test_the_example_image_holds_what_the_job_would_install() -> None:
    lines = (ROOT / "examples/bert-large/requirements.txt").read_text().splitlines()
    assert tuple(line for line in lines if line and not line.startswith("#")) == bert_large.PACKAGES


def test_gpt_overrides_keys_that_the_configuration_has() -> None:
    job = Gpt(nodes=2)
    text = render(job, make_cluster(fleet(), neuron_release="2.28.1"), "t").files["node.sh"].decode()
    command = text.partition("command=(\n")[2].partition("\n)")[0].partition("training_orchestrator.py")[2]
    overrides = set(re.findall(r'(?:^|[ "])([a-z_]+(?:\.[a-z_0-9]+)*)=', command)) - {"config"}
    assert len(overrides) == 12
    recorded = RECORDED["gpt-6.7b"]
    assert overrides <= set(recorded.recorded["keys"])
    assert Gpt.UPSTREAM is not None
    assert (Gpt.UPSTREAM.commit, Gpt.UPSTREAM.path) == (recorded.commit, recorded.path)


def test_the_fake_has_the_keys_of_the_configuration_and_no_others() -> None:
    folder = ROOT / "sandbox/training/repositories/neuronx-distributed-training/examples"
    lines = (folder / "conf/megatron_gpt_config.yaml").read_text().splitlines()
    keys = [line.partition(": ")[0] for line in lines if not line.startswith("#")]
    assert keys == RECORDED["gpt-6.7b"].recorded["keys"]
