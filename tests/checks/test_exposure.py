"""What may be opened too widely, on each engine: refused, or there is no such key. A new engine needs an answer in each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from trainium_cdk import settings
from trainium_cdk.description import checks, engines
from trainium_cdk.errors import SettingsError

ADMIN = "arn:aws:iam::aws:policy/AdministratorAccess"
S3 = "arn:aws:iam::aws:policy/AmazonS3FullAccess"
HEAD: dict[str, Any] = {"subnet": "public"}


class Refused(NamedTuple):
    """An environment that is refused, and a part of the message."""

    environment: dict[str, Any]
    message: str


class No(NamedTuple):
    """Why there is nothing to refuse; the keys of the environment file that would have it, none of which there is."""

    why: str
    keys: tuple[str, ...]


def nodes(section: str, arn: str, message: str) -> Refused:
    return Refused({section: {"node_policies": [arn]}}, message)


def repository(section: str, name: str, address: str, message: str) -> Refused:
    return Refused({section: {}, "catalog": {"repositories": {name: address}}}, message)


def everywhere(made: Any, *words: str) -> dict[str, Refused | No]:
    return {name: made(one.section, *words) for name, one in engines.ENGINES.items()}


def on_nodes(arn: str, message: str) -> dict[str, Refused | No]:
    why = No("jobs have a role of their own, which only eks.data_buckets and jobs widen", ("node_policies",))
    return {"slurm": nodes("pcluster", arn, message), "pcs": nodes("pcs", arn, message), "eks": why}


def override(section: str, value: dict[str, Any], message: str) -> Refused:
    return Refused({section: {"overrides": value}}, message)


NO_SSH = No("no machine takes connections: Session Manager opens shells", ("ssh", "from_cidrs", "dcv"))
NO_OVERRIDES = No("the stack writes it itself, and nothing changes it", ("overrides",))
SLURM_ALONE = {"pcs": NO_OVERRIDES, "eks": NO_OVERRIDES}
PORTS_OF_JOBS = No(
    "jobs are in the cluster's own security group: there is no key for other networks", ("job_networks",)
)
ROWS: dict[str, dict[str, Refused | No]] = {
    "the account, by a policy": on_nodes(ADMIN, "full access to the account"),
    "roles, by a policy": on_nodes("arn:aws:iam::aws:policy/IAMFullAccess", "full access to the account"),
    "most of the account": on_nodes("arn:aws:iam::aws:policy/job-function/PowerUserAccess", "full access to the account"),
    "all that can be read": on_nodes("arn:aws:iam::aws:policy/ReadOnlyAccess", "all data or secrets"),
    "all secrets": on_nodes("arn:aws:iam::aws:policy/SecretsManagerReadWrite", "all data or secrets"),
    "all buckets": on_nodes(S3, "copy with `trn cp`"),
    "a service": on_nodes("arn:aws:iam::aws:policy/AmazonEC2FullAccess", "full access to that service"),
    "a service, newer": on_nodes("arn:aws:iam::aws:policy/AmazonDynamoDBFullAccess_v2", "full access to that service"),
    "SSH": {
        "slurm": Refused({"pcluster": {"head": HEAD | {"ssh": {"key_name": "k", "from_cidrs": ["0.0.0.0/0"]}}}}, "0.0.0.0/0"),
        "pcs": NO_SSH,
        "eks": NO_SSH,
    },
    "SSH, in halves": {
        "slurm": Refused(
            {"pcluster": {"head": HEAD | {"ssh": {"key_name": "k", "from_cidrs": ["0.0.0.0/1", "128.0.0.0/1"]}}}},
            "opens SSH to a large part",
        ),
        "pcs": NO_SSH,
        "eks": NO_SSH,
    },
    "the cluster's API": {
        "slurm": No("Slurm's API is not started", ("endpoint", "public_cidrs")),
        "pcs": No("Slurm's API is reached inside the VPC alone", ("endpoint", "public_cidrs")),
        "eks": Refused({"eks": {"endpoint": "public", "public_cidrs": ["0.0.0.0/0"]}}, "0.0.0.0/0"),
    },
    "the cluster's API, in halves": {
        "slurm": No("Slurm's API is not started", ("endpoint", "public_cidrs")),
        "pcs": No("Slurm's API is reached inside the VPC alone", ("endpoint", "public_cidrs")),
        "eks": Refused({"eks": {"endpoint": "public", "public_cidrs": ["0.0.0.0/1"]}}, "a large part of the internet"),
    },
    "networks of jobs": {
        "slurm": PORTS_OF_JOBS,
        "pcs": PORTS_OF_JOBS,
        "eks": Refused({"eks": {"job_networks": ["0.0.0.0/0"]}}, "every machine of your networks"),
    },
    "the node's own addresses": {
        "slurm": PORTS_OF_JOBS,
        "pcs": PORTS_OF_JOBS,
        "eks": Refused({"eks": {"job_networks": ["169.254.169.254/32"]}}, "where its credentials are"),
    },
    "packages without encryption": everywhere(repository, "pip", "http://10.0.0.1/simple", "no signature"),
    "a password in an address": everywhere(repository, "apt", "https://me@mirror.example.com/apt", "the password would be"),
    "the metadata of nodes": {
        "slurm": override("pcluster", {"Imds": {"ImdsSupport": "v1.0"}}, "can get its credentials"),
        **SLURM_ALONE,
    },
    "the credentials of the head node": {
        "slurm": override("pcluster", {"HeadNode": {"Imds": {"Secured": False}}}, "can get its credentials"),
        **SLURM_ALONE,
    },
    "desktops": {
        "slurm": override("pcluster", {"HeadNode": {"Dcv": {"Enabled": True}}}, "remote desktops"),
        "pcs": NO_SSH,
        "eks": NO_SSH,
    },
    "a script without encryption": {
        "slurm": override("pcluster", {"HeadNode": {"CustomActions": {"OnNodeStart": {"Script": "http://x/y.sh"}}}}, "unencrypted|without encryption"),
        **SLURM_ALONE,
    },
}  # fmt: skip
CASES = [(what, engine) for what in ROWS for engine in engines.ENGINES]


@pytest.mark.parametrize(("what", "engine"), CASES)
def test_what_would_be_open_is_refused_on_every_engine_that_can_have_it(what: str, engine: str) -> None:
    answer = ROWS[what][engine]
    if isinstance(answer, No):
        there = set(keys_of(type(settings.load()).model_fields[engines.get(engine).section].annotation))
        assert not there.intersection(answer.keys), answer.why
        return
    with pytest.raises(SettingsError, match=answer.message):
        checks.require(settings.validate(answer.environment), engine)


def keys_of(model: Any, seen: frozenset[Any] = frozenset()) -> list[str]:
    """The keys of a section, and of all that is in it."""
    found = list[str]()
    for name, field in getattr(model, "model_fields", {}).items():
        found += [name, *keys_of(field.annotation, seen)]
    for part in getattr(model, "__args__", ()) if not hasattr(model, "model_fields") else ():
        found += keys_of(part, seen)
    return found


def test_the_keys_of_a_section_are_found() -> None:
    fields = type(settings.load()).model_fields
    assert {"node_policies", "from_cidrs", "ssh", "overrides"} <= set(keys_of(fields["pcluster"].annotation))
    assert {"public_cidrs", "endpoint", "job_networks", "user_data"} <= set(keys_of(fields["eks"].annotation))


def test_narrow_ones_pass() -> None:
    own = {
        "pcs": {
            "node_policies": [
                "arn:aws:iam::111122223333:policy/trn-corpus",
                "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess",
            ]
        }
    }
    assert not [p for p in checks.check(settings.validate(own), "pcs") if p.key[:2] == ("pcs", "node_policies")]
