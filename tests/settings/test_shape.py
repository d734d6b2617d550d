"""Keys and values of any shape. Those that are refused, each with its message: tests/checks/reported/shape.txt."""

from __future__ import annotations

import cProfile
from collections.abc import Iterator

import pytest

from trainium_cdk import settings
from trainium_cdk.description.settings.base import Settings


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(settings.SettingsError) as caught:
        settings.parse("regoin: x\nname: 5\nnetwork:\n  nat: two\n", "e.yaml")
    assert [p.dotted for p in caught.value.problems] == ["name", "network.nat", "regoin"]
    assert str(caught.value).count("\n") == 2


def test_a_default_that_follows_from_another_key_is_no_second_mistake() -> None:
    with pytest.raises(settings.SettingsError) as caught:
        settings.NodeGroup(root_volume_gib=20)
    assert [p.dotted for p in caught.value.problems] == ["root_volume_gib"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but a comment\n",
        "---\n",
        "pcluster:\nnetwork:\nstorage:\n  efs: {}\n  fsx: {}\ntags:\ncatalog:\n",
        "pcluster:\n  head:\n  queues:\n  slurm_settings:\n  overrides:\n",
        "catalog:\n  instances:\n",
    ],
)
def test_empty_sections_have_their_defaults(text: str) -> None:
    env = settings.parse(text)
    assert env.pcluster == settings.Environment().pcluster
    assert env.network == settings.Environment().network


def test_defaults_of_sections_are_valid_as_they_are() -> None:
    """They are made without a check: a check accepts them, and changes nothing."""
    sections = list(_below(settings.Environment()))
    assert len(sections) > 15
    for section in sections:
        assert type(section)() == section


def _below(section: Settings) -> Iterator[Settings]:
    for value in vars(section).values():
        if isinstance(value, Settings):
            yield value
            yield from _below(value)


def test_null_switches_off_what_can_be_off() -> None:
    env = settings.parse("storage: {efs: null, fsx: {}}\npcluster: {queues: [{local_storage_dir: null}]}")
    assert env.storage.efs is None
    assert env.pcluster.queues[0].local_storage_dir is None


@pytest.mark.parametrize("header", ["", "%YAML 1.1\n---\n"], ids=["YAML 1.2", "YAML 1.1"])
@pytest.mark.parametrize("setting", ["on", "off", "auto", '"on"'])
def test_on_and_off_may_be_booleans(header: str, setting: str) -> None:
    env = settings.parse(
        f"{header}pcluster: {{queues: [{{placement_group: {setting}, compute_resources: [{{efa: {setting}}}]}}]}}"
    )
    queue = env.pcluster.queues[0]
    assert (queue.placement_group, queue.compute_resources[0].efa) == (setting.strip('"'),) * 2


def test_mount_dirs_are_normal_paths() -> None:
    env = settings.parse("storage: {efs: {mount_dir: /shared//efs/}}")
    assert env.storage.shared_dir == "/shared/efs"


def test_an_inconsistent_catalogue_is_refused_in_code_too() -> None:
    with pytest.raises(ValueError, match=r"catalog\.instances\.trn1\.32xlarge\.vcpus"):
        settings.Environment.model_validate({"catalog": {"instances": {"trn1.32xlarge": {"vcpus": 0}}}})


def test_an_added_type_is_looked_up_like_ours() -> None:
    env = settings.parse(
        """
catalog:
  instances: {trn1.32xlarge: {max_pods: 100}}
  regions: {euc1: eu-central-1}
  prices: {us-west-2: {trn1.32xlarge: 21.5}}
"""
    )
    assert env.catalog.instance("trn1.32xlarge").max_pods == 100
    assert env.catalog.instance("trn1.32xlarge").efa_interfaces == 8, "what is not overridden stays"
    assert env.catalog.region_of("euc1-az2") == "eu-central-1"
    assert env.catalog.price("trn1.32xlarge", "us-west-2") == 21.5
    assert env.catalog.price("trn1.32xlarge", "us-east-1") == 21.5, "the other regions stay"
    assert settings.Environment().catalog.instance("trn1.32xlarge").max_pods == 247


def test_a_line_of_slurm_conf_becomes_a_line_of_ours() -> None:
    """As the message says."""
    written = "PartitionName=all Nodes=compute1-dy-trn-[1-2] PriorityTier=10"
    with pytest.raises(settings.SettingsError) as refused:
        settings.parse(f'pcluster: {{slurm_settings: ["{written}"]}}')
    advice = refused.value.problems[0].fix.removeprefix("write ")
    [line] = settings.parse(f"pcluster: {{slurm_settings: [{advice}]}}").pcluster.slurm_settings
    assert " ".join(f"{name}={value}" for name, value in line.items()) == written


@pytest.mark.parametrize("key", ["reservation", "custom_ami", "zone_id"])
def test_an_object_of_python_in_place_of_text_is_answered_with_an_example(key: str) -> None:
    """As when a construct is given in place of its id. The example is taken."""
    with pytest.raises(settings.SettingsError, match=r"\(object\): this is text, not an object of Python") as refused:
        settings.NodeGroup(name="trn", instance_type="trn2.48xlarge", **{key: object()})
    example = refused.value.problems[0].fix.rpartition(" ")[2]
    assert getattr(settings.NodeGroup(name="trn", instance_type="trn2.48xlarge", **{key: example}), key) == example


def test_a_user_may_have_a_dot() -> None:
    [user] = settings.parse("pcs: {users: [{name: jane.doe, uid: 2001}]}").pcs.users
    assert user.name == "jane.doe"


def test_numbers_of_any_size_are_shown() -> None:
    """Data that did not come from a file."""
    for data in ({"account": 1 << 100_000}, {"tags": {"a": 1 << 100_000}}, {"nodes": 1 << 100_000}):
        with pytest.raises(settings.SettingsError, match=r" = 0x10+\N{HORIZONTAL ELLIPSIS}: "):
            settings.validate(data)


def calls(keys: int) -> int:
    """Function calls that it takes to name so many unknown keys: the same on any machine."""
    profile = cProfile.Profile()
    with pytest.raises(settings.SettingsError) as caught, profile:
        settings.validate({f"key{i}": 1 for i in range(keys)})
    assert len(caught.value.problems) == keys
    return sum(entry.callcount for entry in profile.getstats())


def test_many_mistakes_take_no_longer_each() -> None:
    calls(10)  # what is done once
    assert calls(1600) < 5 * calls(400)
