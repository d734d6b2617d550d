"""What the job kinds run, against the recorded surface of the vendors' programs (`conformance/surfaces.yaml`)."""

from __future__ import annotations

import re

import pytest

from conformance import surfaces
from sandbox.training.standin import bert
from tests.jobs.conftest import fleet, make_cluster
from trainium_cdk.catalog.sources import sources
from trainium_cdk.jobs import AnyJob, BertLarge, render

RECORDED = surfaces.load()
TREES = {"bert-large": "samples"}
JOBS: dict[str, list[AnyJob]] = {
    "bert-large": [BertLarge(), BertLarge(phase=2, checkpoint="x"), BertLarge(optimizer="adamw", warmup_steps=3)],
}


def options(job: AnyJob) -> set[str]:
    """The options that a job's node script gives to the vendor's program."""
    text = render(job, make_cluster(fleet()), "t").files["node.sh"].decode()
    command = text.partition("command=(\n")[2].partition("\n)")[0]
    lines = command.splitlines()
    program = next(i for i, line in enumerate(lines) if re.fullmatch(r"\s+[\w/]+\.py", line))
    resume = re.findall(r"^resume=\(.*|^  resume=\(.*", text, re.MULTILINE)
    return set(re.findall(r"--[\w-]+", "\n".join([*lines[program:], *resume])))


@pytest.mark.parametrize("kind", JOBS)
def test_options_exist_at_the_pinned_commit(kind: str) -> None:
    recorded = RECORDED[kind]
    assert sources().repositories[TREES[kind]].commit == recorded.commit
    for job in JOBS[kind]:
        given = options(job)
        assert len(given) > 5
        assert given <= set(recorded.recorded["options"]), job


def test_the_bert_script_uses_only_what_torch_xla_2_9_has() -> None:
    """Every release of Neuron with PyTorch/XLA training that the catalogue has is of PyTorch 2.9."""
    used = RECORDED["bert-large"].recorded["torch_xla"]
    assert len(used) >= 3
    for module, names in used.items():
        assert set(names) <= set(RECORDED[module].recorded["names"]), module


def test_the_stand_in_takes_the_options_of_the_script_and_no_others() -> None:
    taken = {o for action in bert.parser()._actions for o in action.option_strings if o.startswith("--")} - {"--help"}
    assert taken == set(RECORDED["bert-large"].recorded["options"])
