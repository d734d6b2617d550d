"""The base of every settings model, and the types that several of them share."""

from __future__ import annotations

import math
import posixpath
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from trainium_cdk.catalog import Catalog
from trainium_cdk.problems import KeyPath, wrong
from trainium_cdk.text import Text


class Settings(BaseModel):
    """Frozen, and strict about keys: a misspelt key is an error and is never ignored.

    A section with nothing under it (`pcluster:`) gets its defaults. A single value must not be left empty. Where `null` means "none of
    this", it is accepted (see `may_be_none`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_section_is_default(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or None not in data.values():
            return data
        sections = _sections(cls)
        return {k: v for k, v in data.items() if v is not None or k not in sections}

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_known(cls, data: Any) -> Any:
        for key, value in data.items() if isinstance(data, Mapping) else ():
            if isinstance(value, float) and -math.inf < value <= NUMBER_TOKEN:
                raise wrong(f"{key} is a token of the CDK, which has no value before the deployment", "give a number")
        return data

    @model_validator(mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, data: Any) -> Any:
        """As text they are refused; Python takes `true` for 1."""
        if not isinstance(data, Mapping) or not any(isinstance(value, bool) for value in data.values()):
            return data
        numbers = _numbers(cls)
        return {k: str(v).lower() if isinstance(v, bool) and k in numbers else v for k, v in data.items()}


@cache
def _numbers(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model that hold numbers, and no booleans."""
    return frozenset(k for k, kinds in _kinds(model) if bool not in kinds and any(map(_is_number, kinds)))


def _is_number(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(isinstance(value, int) for value in get_args(kind))
    return kind in (int, float)


@cache
def _sections(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model that hold mappings or lists, and may not be null."""
    return frozenset(k for k, kinds in _kinds(model) if type(None) not in kinds and any(map(_is_section, kinds)))


def _kinds(model: type[BaseModel]) -> list[tuple[str, tuple[Any, ...]]]:
    """The keys of a model, each with the types that it may have."""
    return [(f.alias or name, tuple(_choices(f.annotation))) for name, f in model.model_fields.items()]


def may_be_none(model: type[BaseModel], path: KeyPath) -> Literal["section", "value"] | None:
    """Whether `null` at this path means something other than the default, and whether the path is a section or a single
    value."""
    kinds: list[Any] = [model]
    default: Any = None
    for step in path:
        if isinstance(step, int):
            kinds = [c for k in kinds if get_origin(k) is tuple for c in _choices(get_args(k)[0])]
            continue
        models = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        fields = [f for m in models for name, f in m.model_fields.items() if (f.alias or name) == step]
        kinds = [c for f in fields for c in _choices(f.annotation)]
        default = fields[0].default if fields else None
    if type(None) not in kinds:
        return None
    if any(map(_is_section, kinds)):
        return "section"
    return "value" if default is not None else None


def _choices(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        for choice in get_args(annotation):
            yield from _choices(choice)
    elif get_origin(annotation) is Annotated:
        yield from _choices(get_args(annotation)[0])
    else:
        yield annotation


def _is_section(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, BaseModel | dict | tuple)


def on_or_off(value: Any) -> Any:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _cidr(value: str) -> str:
    if not re.fullmatch(r"[0-9.]+/(0|[1-9][0-9]*)", value):
        raise wrong("not an IPv4 network", "write the network address and its prefix, for example 10.0.0.0/16")
    try:
        IPv4Network(value)
    except ValueError as e:
        raise wrong(
            f"not an IPv4 network ({e})", "write the network address and its prefix, for example 10.0.0.0/16"
        ) from e
    return value


def _network(value: str) -> str:
    if not value.startswith("pl-"):
        return _cidr(value)
    if not re.fullmatch(r"pl-[0-9a-f]{8,17}", value):
        raise wrong("not the ID of a prefix list", "write it as EC2 prints it, for example pl-0123456789abcdef0")
    return value


def _address(value: str) -> str:
    """ParallelCluster finds the allocation by the address (get_eip_allocation_id of aws-parallelcluster 3.16.1)."""
    if re.fullmatch(r"eipalloc-[0-9a-f]+", value):
        raise wrong(
            "ParallelCluster looks for the address itself, and does not find it by its allocation ID",
            f"write the address: `aws ec2 describe-addresses --allocation-ids {value}` prints it",
        )
    try:
        return str(IPv4Address(value))
    except ValueError:
        raise wrong("not an IPv4 address", "write a public address, for example 203.0.113.10") from None


def refuse_everywhere(cidr: str, opened: str, fix: str) -> str:
    """A network, unless it is every address. A prefix list passes."""
    if cidr.endswith("/0"):
        raise wrong(
            f"this opens {opened} to every IPv4 address", f"give your own network, for example 203.0.113.0/24, or {fix}"
        )
    return cidr


def refuse_duplicates(names: Sequence[str], kind: str) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise wrong(f"{names.count(twice)} {kind}s are named {twice}", f"give each {kind} a unique name")


def _mount(value: str) -> str:
    value = posixpath.normpath(value)
    if value in Catalog.load().parallelcluster.reserved_mount_dirs:
        raise wrong(f"{value} belongs to the operating system", "choose another directory, for example /efs or /fsx")
    return value


def _mount_of_nodes(value: str) -> str:
    if _mount(value) == "/home":
        raise wrong("/home has the users' homes", "choose another directory, for example /local_storage")
    return _mount(value)


def _token_or_checked(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, str) and is_placeholder(value) else check(value)


def is_placeholder(text: str) -> bool:
    """Whether its value comes later: it is, or contains, a token or the placeholder of a lookup."""
    return any(mark in text for mark in PLACEHOLDERS)


TOKEN = "${Token["  # noqa: S105  not a secret
"""How the CDK's tokens begin. CloudFormation fills them in at deployment, so that they cannot be checked here."""
LIST_TOKEN = "#{Token["  # noqa: S105  not a secret
"""How the one element of a list begins whose elements are not known."""
LOOKUP = "dummy-value-for-"
"""What the CDK puts in place of a value that it looks up after the first synthesis (`value_from_lookup`)."""
PLACEHOLDERS = (TOKEN, LOOKUP)
"""Marks of values that come later, so that they cannot be checked here. An environment file cannot have them."""
NUMBER_TOKEN = -1.8e289
"""Numbers that stand for the CDK's tokens are below it."""
MaybeToken = WrapValidator(_token_or_checked)
OnOff = Annotated[Literal["auto", "on", "off"], BeforeValidator(on_or_off)]
"""YAML 1.1 tools turn `on` and `off` into booleans: both forms are accepted."""
Cidr = Annotated[str, AfterValidator(_cidr)]
Cidrs = Annotated[
    tuple[Cidr, ...],
    BeforeValidator(
        lambda given: (given,) if isinstance(given, str) else given, json_schema_input_type=Cidr | tuple[Cidr, ...]
    ),
    Field(min_length=1),
]
"""One network, or several."""
SshSource = Annotated[str, AfterValidator(_network)]
"""An IPv4 network, or the ID of a prefix list."""
Address = Annotated[str, AfterValidator(_address), MaybeToken]
"""A public IPv4 address."""
_PATH = Text(
    r"^/[A-Za-z0-9_][A-Za-z0-9_/-]*$",
    "a path that begins with a slash, of letters, digits, _ and -",
    "/efs",
    max_length=100,
)
SharedDir = Annotated[str, _PATH, AfterValidator(_mount)]
"""Where a shared file system is mounted: /home too."""
MountDir = Annotated[str, _PATH, AfterValidator(_mount_of_nodes)]
"""Another directory of a node; not /home."""
ZoneId = Annotated[
    str,
    Text(
        r"^[a-z]{2,5}[0-9]+-az[0-9]+$",
        "the ID of a zone, not its name (`aws ec2 describe-availability-zones` prints both)",
        "use1-az6",
    ),
]
Region = Annotated[str, Text(r"^[a-z]{2,4}(-[a-z]+)+-[0-9]$", "a region, without the letter of a zone", "us-west-2")]
AccountId = Annotated[str, Text(r"^[0-9]{12}$", "the 12 digits of an AWS account", "111122223333"), MaybeToken]
VpcId = Annotated[str, Text(r"^vpc-[0-9a-f]{8,17}$", "the ID of a VPC", "vpc-0123456789abcdef0"), MaybeToken]
SubnetId = Annotated[
    str, Text(r"^subnet-[0-9a-f]{8,17}$", "the ID of a subnet", "subnet-0123456789abcdef0"), MaybeToken
]
SecurityGroupId = Annotated[
    str, Text(r"^sg-[0-9a-f]{8,17}$", "the ID of a security group", "sg-0123456789abcdef0"), MaybeToken
]
RouteTableId = Annotated[
    str, Text(r"^rtb-[0-9a-f]{8,17}$", "the ID of a route table", "rtb-0123456789abcdef0"), MaybeToken
]
AmiId = Annotated[str, Text(r"^ami-[0-9a-f]{8,17}$", "the ID of an AMI", "ami-0123456789abcdef0"), MaybeToken]
Arn = Annotated[
    str,
    Text(
        r"^arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:([0-9]{12}|aws)?:\S+$",
        "an ARN",
        "arn:aws:iam::111122223333:role/Trainer",
    ),
    MaybeToken,
]
KeyArn = Annotated[
    str,
    Text(
        r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$",
        "the ARN of a KMS key",
        "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    ),
    MaybeToken,
]
PolicyArn = Annotated[
    str,
    Text(
        r"^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/\S+$",
        "the ARN of an IAM policy",
        "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess",
    ),
    MaybeToken,
]
BucketName = Annotated[
    str,
    Text(
        r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        "the name of a bucket: 3 to 63 small letters, digits, dots and hyphens",
        "my-bucket",
    ),
    MaybeToken,
]
S3Uri = Annotated[
    str,
    Text(
        r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[ -~]*)?$",
        "an address in S3: a bucket, and a prefix if you like",
        "s3://my-bucket/data",
    ),
    MaybeToken,
]
Version = Annotated[str, Text(r"^[0-9]+(\.[0-9]+)+$", "a version: numbers with dots between them", "2.33.0")]
InstanceTypeName = Annotated[
    str, Text(r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$", "the name of an instance type", "trn2.48xlarge")
]
Days = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653]
