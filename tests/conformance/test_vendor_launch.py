"""The kinds' command lines and variables beside those of the vendors' own launch scripts, as recorded in conformance/surfaces.yaml."""

from __future__ import annotations

from functools import cache

import pytest

from conformance import cases, compare, record, surface
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.sources import sources

JOBS = {name: job for name, job in {**cases.JOBS, **cases.MORE}.items() if f"launch of {name}" in compare.RECORDED}
WITHOUT = {"finetune", "nccom", "script"}
"""Kinds without a launch script: TRL and nccom-test are programs with examples only, a script is the user's."""
LISTED = compare.listed()


@cache
def difference(name: str, engine: str) -> dict[str, tuple[str | None, str | None]]:
    job = JOBS[name]
    ours = compare.settings(job.kind, cases.start(engine, job))
    return compare.differing(ours, compare.settings(job.kind, compare.vendor(name, engine)))


def test_every_kind_is_compared() -> None:
    assert {job.kind for job in JOBS.values()} == set(kinds()) - WITHOUT
    assert {f"launch of {name}" for name in JOBS} == {
        name for name in compare.RECORDED if name.startswith("launch of ")
    }


@pytest.mark.parametrize("engine", cases.ENGINES)
@pytest.mark.parametrize("name", JOBS)
def test_differs_from_the_vendors_script_only_as_listed(name: str, engine: str) -> None:
    reasons = {**LISTED["all"], **LISTED[JOBS[name].kind]}
    of_srun = {f"variable {variable}" for variable in record.OF_SRUN}  # no program of a vendor reads them
    found = {key: values for key, values in difference(name, engine).items() if key not in of_srun}
    assert compare.unexplained(found, reasons) == []


@pytest.mark.parametrize("kind", LISTED)
def test_each_listed_difference_is_one(kind: str) -> None:
    found = {
        name
        for case, job in JOBS.items()
        if kind in ("all", job.kind)
        for engine in cases.ENGINES
        for name in difference(case, engine)
    }
    assert LISTED[kind].keys() <= found


@pytest.mark.parametrize("kind", ["bert-large", "gpt-6.7b", "torchtitan"])
def test_the_recorded_parser_takes_our_arguments_and_no_others(kind: str) -> None:
    job = cases.JOBS[kind]
    wrong = "trainer.no_such_key=1" if kind == "gpt-6.7b" else "--no_such_option"
    for stage in ["precompile", "train"] if job.precompile else ["train"]:
        arguments = cases.start("slurm", job, stage).arguments
        assert len(compare.options(kind, arguments)) > 5
        with pytest.raises(surface.Refused, match="no_such"):
            compare.options(kind, [*arguments, wrong])


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("bert-large", "--optimizer SGD", "invalid choice: 'SGD'"),
        ("bert-large", "--batch_size many", "invalid int value: 'many'"),
        ("torchtitan", "--module a --config b --training.dtype int8", "invalid choice: 'int8'"),
        ("torchtitan", "--module a", "--config"),
        ("gpt-6.7b", "trainer.max_steps=all", "trainer.max_steps is 'all', and the configuration has 20000"),
    ],
)
def test_recorded_parsers_have_types_choices_and_required_options(kind: str, arguments: str, message: str) -> None:
    with pytest.raises(surface.Refused, match=message):
        compare.options(kind, arguments.split())


@pytest.mark.parametrize("name", ["bert-seqlen128", "bert-seqlen512", "gpt2-wikipedia"])
def test_data_sets_are_where_the_vendors_tutorials_fetch_them(name: str) -> None:
    kind = "gpt-6.7b" if name == "gpt2-wikipedia" else "bert-large"
    fetched = compare.RECORDED[f"data of {kind}"].recorded["objects"]
    assert {one.uri for one in sources().datasets[name]} <= set(fetched)


def test_torchtitans_presets_are_configurations_of_its_repository() -> None:
    """Those of AWS's own module are in its documentation alone."""
    for name, preset in Catalog.load().torchtitan.items():
        if not preset.module.startswith("torchtitan_neuron."):
            assert preset.config in compare.RECORDED[f"torchtitan presets of {preset.module}"].recorded["names"], name
