"""Keys and values of the wrong shape: each is named with its line, value, reason and fix."""

from __future__ import annotations

import cProfile

import pytest

from trainium_cdk import settings

# (YAML, key, value as shown, part of the reason and fix); the line with the mistake ends in `# <-`
TABLE = [
    # keys that are not there
    ("regoin: us-east-1  # <-", "regoin", "us-east-1", "this key does not exist. Fix: write region."),
    ("quues: []  # <-", "quues", "[]", "Fix: remove it; the known keys are name, region, account,"),
    ("network:\n  zone_id: [use1-az5]  # <-", "network.zone_id", "['use1-az5']", "Fix: write zone_ids."),
    ("overrides: {}  # <-", "overrides", "{}", "this key does not exist"),
    (
        "pcluster:\n  queues:\n  - name: a\n  - compute_resources:\n    - instance_typ: trn1.32xlarge  # <-",
        "pcluster.queues[1].compute_resources[0].instance_typ",
        "trn1.32xlarge",
        "Fix: write instance_type.",
    ),
    # required keys
    ("pcluster:\n  accounting:  # <-\n    user: a\n    uri: db", "pcluster.accounting.password_secret", "(absent)", "add `password_secret:`"),
    # nothing, where something is needed
    ("region:  # <-", "region", "(nothing)", "write a value after `region:`, or remove the line"),
    ("pcluster:\n  queues:\n    -  # <-", "pcluster.queues[0]", "(nothing)", "write a value after the dash"),
    ("pcluster: {queues: []}  # <-", "pcluster.queues", "[]", "it needs at least 1 item"),
    # text that YAML reads as something else
    ("account: 012345678901  # <-", "account", "012345678901", 'read as a number, not as text. Fix: put it in quotes: "012345678901"'),
    ("tags:\n  cost-centre: 4711  # <-", "tags.cost-centre", "4711", 'put it in quotes: "4711"'),
    ("tags: {spot: true}  # <-", "tags.spot", "true", 'read as true or false, not as text. Fix: put it in quotes: "true"'),
    ("tags: {until: 2026-12-31}  # <-", "tags.until", "2026-12-31", 'read as a date, not as text. Fix: put it in quotes: "2026-12-31"'),
    ("bootstrap: {neuron_release: 2.30}  # <-", "bootstrap.neuron_release", "2.30", 'put it in quotes: "2.30"'),
    ("tags: {build: 0x1F}  # <-", "tags.build", "0x1F", 'put it in quotes: "0x1F"'),
    ("network:\n  existing:\n    vpc_id: vpc-0123456789abcdef0\n    subnets: []\n    : 5  # <-", "network.existing.", "(nothing)", "this key has no name. Fix: write its name before the colon"),
    ("tags: {1: x}  # <-", "tags[1]", "1", "read as a number"),
    # a value where a section or a list is, and the other way round
    ("network: 10.0.0.0/16  # <-", "network", "10.0.0.0/16", "this is a section, not a value. Fix: write keys under it, for example cidr"),
    ("storage: {efs: true}  # <-", "storage.efs", "true", "write keys under it, for example mount_dir"),
    ("network: {zone_ids: use1-az5}  # <-", "network.zone_ids", "use1-az5", "this is a list. Fix: write its items under `zone_ids:`, one per line, each after a dash"),
    ("tags: [a]  # <-", "tags", "['a']", "this is a section, not a value"),
    # choices and forms
    ("on_destroy: kept  # <-", "on_destroy", "kept", "write 'delete' or 'keep'"),
    ("network: {nat: 1}  # <-", "network.nat", "1", "write 'one', 'per-zone' or 'none'"),
    ("pcluster: {queues: [{placement_group: yes}]}  # <-", "pcluster.queues[0].placement_group", "yes", "write 'auto', 'on' or 'off'"),
    ("name: Mine  # <-", "name", "Mine", "write at least two small letters, digits and hyphens, with a letter as the first and"),
    ("name: a-  # <-", "name", "a-", "with a letter as the first and a letter or digit as the last"),
    ("eks: {namespace: a-}  # <-", "eks.namespace", "a-", "write small letters, digits and hyphens, with a letter as the first"),
    ("account: '12345'  # <-", "account", "12345", "write text that matches"),
    ("network: {zone_ids: [us-east-1a]}  # <-", "network.zone_ids[0]", "us-east-1a", "write text that matches"),
    ("network: {private_prefix: 29}  # <-", "network.private_prefix", "29", "should be less than or equal to 28"),
    ("network: {private_prefix: x}  # <-", "network.private_prefix", "x", "should be a valid integer"),
    ("network: {cidr: 10.0.0.1/16}  # <-", "network.cidr", "10.0.0.1/16", "has host bits set"),
    ("network: {cidr: 10.0.0.0}  # <-", "network.cidr", "10.0.0.0", "write the network address and its prefix"),
    ("network: {cidr: 10.0.0.0/33}  # <-", "network.cidr", "10.0.0.0/33", "not an IPv4 network"),
    ("name: a-very-long-name-for-an-environment  # <-", "name", "a-very-long-name-for-an-environment", "at most 30 characters"),
    # values that contradict each other
    ("storage: {efs: {throughput: provisioned}}  # <-", "storage.efs", "(this section)", "add provisioned_mibps: 1024"),
    ("storage: {efs: {provisioned_mibps: 9}}  # <-", "storage.efs", "(this section)", "but throughput is elastic"),
    ("storage: {fsx: {capacity_gib: 5000}}  # <-", "storage.fsx", "(this section)", "Fix: write 1200 or 4800"),
    ("storage: {fsx: {capacity_gib: -1}}  # <-", "storage.fsx", "(this section)", "Fix: write 1200 or 2400"),
    ("storage: {fsx: {deployment: PERSISTENT_2, throughput: 50}}  # <-", "storage.fsx", "(this section)", "write one of 125, 250, 500, 1000"),
    ("storage: {fsx: {throughput: 50}}  # <-", "storage.fsx", "(this section)", "remove throughput, or choose PERSISTENT_2"),
    ("storage: {fsx: {backup_days: 1}}  # <-", "storage.fsx", "(this section)", "SCRATCH_2 has no backups"),
    ("storage: {fsx: {s3: {uri: 's3://b-a', auto_export: true}}}  # <-", "storage.fsx", "(this section)", "SCRATCH_2 cannot export to S3 automatically"),
    ("storage: {efs: null}  # <-", "storage", "(this section)", "neither efs nor fsx"),
    ("storage: {efs: {mount_dir: /fsx/efs}, fsx: {}}  # <-", "storage", "(this section)", "the mount directories of efs and fsx overlap (/fsx/efs and /fsx)"),
    ("storage: {efs: {mount_dir: /opt/}}  # <-", "storage.efs.mount_dir", "/opt/", "/opt belongs to the operating system"),
    ("storage: {efs: {mount_dir: /my files}}  # <-", "storage.efs.mount_dir", "/my files", "write text that matches"),
    ("pcluster: {queues: [{name: a}, {name: a}]}  # <-", "pcluster", "(this section)", "2 queues are named a"),
    ("pcluster: {queues: [{name: default}]}  # <-", "pcluster.queues[0]", "(this section)", "a queue cannot be named default"),
    ("pcluster: {queues: [{name: UPPER}]}  # <-", "pcluster.queues[0].name", "UPPER", "write text that matches"),
    ("pcluster: {queues: [{name: a2345678901234567890123456}]}  # <-", "pcluster.queues[0].name", "a2345678901234567890123456", "at most 25 characters"),
    ("pcluster: {queues: [{compute_resources: [{name: a}, {name: a}]}]}  # <-", "pcluster.queues[0]", "(this section)", "2 compute resources are named a"),
    ("pcluster: {queues: [{compute_resources: [{min_nodes: 20}]}]}  # <-", "pcluster.queues[0].compute_resources[0]", "(this section)", "set max_nodes: 20"),
    ("pcluster: {head: {ssh: {from_cidrs: [0.0.0.0/0]}}}  # <-", "pcluster.head.ssh.from_cidrs[0]", "0.0.0.0/0", "this opens SSH to every IPv4 address"),
    ("pcluster: {head: {ssh: {}}}  # <-", "pcluster.head.ssh.from_cidrs", "(absent)", "add `from_cidrs:`"),
    ("bootstrap: {pip_packages: [git+https://x.y/z]}  # <-", "bootstrap.pip_packages[0]", "git+https://x.y/z", "write text that matches"),
    ("pcluster: {provider: {role: 'arn:aws:iam::111122223333:role/P', policies: ['arn:aws:iam::aws:policy/A']}}  # <-", "pcluster.provider", "(this section)", "policies are only added to a role that the stack creates, but role names an existing one. Fix: attach the policies to that role"),
    # nothing after a key where null is a choice
    ("storage: {efs: , fsx: {}}  # <-", "storage.efs", "(nothing)", "it is unclear whether this means the default or none. Fix: write {} for its defaults, or null for none"),
    ("pcluster:\n  login_nodes:  # <-\n", "pcluster.login_nodes", "(nothing)", "write {} for its defaults, or null for none"),
    ("pcluster: {queues: [{local_storage_dir: }]}  # <-", "pcluster.queues[0].local_storage_dir", "(nothing)", "write null for none, or remove the line for its default"),
    # the catalogue's own additions
    ("catalog: {instances: {trn1.32xlarge: {vcpuss: 3}}}  # <-", "catalog.instances.trn1.32xlarge.vcpuss", "3", "this key does not exist. Fix: write vcpus."),
    ("catalog: {instances: {trn1.32xlarge: {vcpus: 0}}}  # <-", "catalog.instances.trn1.32xlarge.vcpus", "0", "should be greater than 0"),
    ("catalog: {instances: {trn1.32xlarge: {efa_interfaces: 9}}}  # <-", "catalog.instances.trn1.32xlarge", "(this section)", "but each of the 8 network cards"),
    ("catalog: {instances: {trn1.32xlarge: 5}}  # <-", "catalog.instances.trn1.32xlarge", "5", "this is a section, not a value"),
    ("catalog: {releases: {2.30.0: {dkms: latest}}}  # <-", "catalog.releases.2.30.0.dkms", "latest", "write text that matches"),
    ("catalog: {releases: {2.30.0: {frameworks: {jax: {package: jax, version: '1.0', families: []}}}}}  # <-", "catalog.releases.2.30.0.frameworks.jax", "jax", "write 'torch-xla' or 'torch-native'"),
    ("catalog: {prices: {us-east-1: {trn1.32xlarge: cheap}}}  # <-", "catalog.prices.us-east-1.trn1.32xlarge", "cheap", "should be a valid number"),
    ("catalog: {prices: {us-east-1: {trn1.32xlarge: .nan}}}  # <-", "catalog.prices.us-east-1.trn1.32xlarge", "nan", "should be a finite number"),
    ("catalog: {repositories: {pipe: 'https://x'}}  # <-", "catalog.repositories.pipe", "https://x", "this key does not exist. Fix: write pip"),
    ("catalog: {repositories: {apt: 'ftp://x'}}  # <-", "catalog.repositories.apt", "ftp://x", "write text that matches"),
    ("catalog: {instance: {}}  # <-", "catalog.instance", "{}", "Fix: write instances."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "value", "message"), TABLE, ids=[f"{k}: {m[:40]}" for _, k, _, m in TABLE])
def test_refused(text: str, key: str, value: str, message: str) -> None:
    with pytest.raises(settings.SettingsError) as caught:
        settings.parse(text, "environment.yaml")
    assert [p.dotted for p in caught.value.problems] == [key]
    line = next(i for i, line in enumerate(text.splitlines(), 1) if line.endswith("# <-"))
    paragraph = str(caught.value)
    assert paragraph.startswith(f"environment.yaml:{line}: error: {key} = {value}: ")
    assert message in paragraph
    assert "\n" not in paragraph


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(settings.SettingsError) as caught:
        settings.parse("regoin: x\nname: 5\nnetwork:\n  nat: two\n", "e.yaml")
    assert [p.dotted for p in caught.value.problems] == ["name", "network.nat", "regoin"]
    assert str(caught.value).count("\n") == 2


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
