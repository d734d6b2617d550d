"""The base of every settings model, and the types that several of them share. Some take the CDK's own types and tokens in place of a number or a word.
Nothing here imports the CDK."""

from __future__ import annotations

import ast
import inspect
import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.settings.keys import numbers, sections
from trainium_cdk.description.settings.shape import problems_of
from trainium_cdk.errors import SettingsError
from trainium_cdk.problems import Source, wrong
from trainium_cdk.text import S3_FOLDER, Text, is_placeholder

NUMBER_TOKEN = -1.8e289
"""Numbers that stand for the CDK's tokens are below it."""


class Settings(BaseModel):
    """Frozen, and strict about keys: a misspelt key is an error and is never ignored.

    A section with nothing under it (`pcluster:`) gets its defaults. A single value must not be left empty. Where `null` means "none of
    this", it is accepted (see `may_be_none`).

    The default of a section is `model_construct()`: its values need no checks, and `Section()` would build a validator for each class.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def __init__(self, /, **values: Any) -> None:
        """Raises SettingsError for values that are wrong; the message lists each with its fix."""
        try:
            super().__init__(**values)
        except ValidationError as e:
            raise SettingsError(problems_of(e, type(self)), Source(type(self).__name__)) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # sections of a section need no call of it

    @model_validator(mode="before")
    @classmethod
    def _empty_section_is_default(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or None not in data.values():
            return data
        return {k: v for k, v in data.items() if v is not None or k not in sections(cls)}

    @model_validator(mode="before")
    @classmethod
    def _numbers_are_known(cls, data: Any) -> Any:
        for key, value in data.items() if isinstance(data, Mapping) else ():
            if is_number_token(value) and key not in deferred(cls):
                raise wrong(f"{key} is a token of the CDK, which has no value before the deployment", "give a number")
        return data

    @model_validator(mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, data: Any) -> Any:
        """Turn booleans into text where a number belongs, so that they are refused: Python takes `true` for 1."""
        if not isinstance(data, Mapping) or not any(isinstance(value, bool) for value in data.values()):
            return data
        return {k: str(v).lower() if isinstance(v, bool) and k in numbers(cls) else v for k, v in data.items()}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for kind in cls.__mro__:
            for name, text in _docstrings(kind) if issubclass(kind, Settings) else ():
                key = cls.model_fields[name].alias or name
                schema["properties"][key].setdefault("description", text)
        return schema


def _docstrings(model: type[Settings]) -> Iterator[tuple[str, str]]:
    """Keys of a model's own code, each with the docstring below it. With pydantic's `use_attribute_docstrings`, each import would read them."""
    [code] = ast.parse(inspect.getsource(model)).body
    assert isinstance(code, ast.ClassDef)  # noqa: S101  for the type checker
    for key, below in pairwise(code.body):
        match key, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                yield name, inspect.cleandoc(text)


def is_number_token(value: object) -> bool:
    """Return whether a value is a number that stands for a token."""
    return isinstance(value, int | float) and -math.inf < value <= NUMBER_TOKEN


@cache
def deferred(model: type[BaseModel]) -> frozenset[str]:
    """The keys of a model whose numbers may be tokens."""
    return frozenset(f.alias or name for name, f in model.model_fields.items() if MaybeNumberToken in f.metadata)


def _text_or_checked(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, str) and is_placeholder(value) else check(value)


def _number_or_checked(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if is_number_token(value) else check(value)


def _by(method: str, whole: str = "") -> Callable[[Any], Any]:
    """Calls a method of the CDK's value; any other value stays. `whole` is the unit that must come out even."""

    def convert(value: Any) -> Any:
        own = getattr(value, method, None)
        if not callable(own):
            return value
        try:
            return own()
        except RuntimeError as e:  # jsii's errors are RuntimeErrors
            reason = str(e).partition("\n")[0].partition(": ")[2].rstrip(".")
            raise wrong(reason or "it cannot be read", f"give whole {whole}") from None

    return convert


def _member(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _version(value: Any) -> Any:
    return getattr(value, "version", value)


def _word(value: Any) -> Any:
    return str(value.value).lower().replace("_", "-") if isinstance(value, Enum) else value


MaybeToken = WrapValidator(_text_or_checked)
"""Outermost on a text: it may be a token, where the template can have one."""
MaybeNumberToken = WrapValidator(_number_or_checked)
"""On a number, after its limits and before `From...`: it may be a token, where the template can have one. All other numbers refuse tokens."""
FromName = BeforeValidator(_by("to_string"))
"""On a text: also an object with `to_string`, such as `ec2.InstanceType`."""
FromGibibytes = BeforeValidator(_by("to_gibibytes", "GiB"))
"""On a number of GiB: also a `Size`."""
FromMebibytes = BeforeValidator(_by("to_mebibytes", "MiB"))
"""On a number of MiB: also a `Size`."""
FromMinutes = BeforeValidator(_by("to_minutes", "minutes"))
"""On a number of minutes: also a `Duration`."""
FromDays = BeforeValidator(_by("to_days", "days"))
"""On a number of days: also a `Duration`."""
FromMember = BeforeValidator(_member)
"""On one of several words: also a member of an enum of the CDK whose value is that word as it is, such as `LustreDeploymentType.SCRATCH_2`."""
FromWord = BeforeValidator(_word)
"""On one of several words: also a member of an enum of the CDK whose value is that word, such as `CapacityType.ON_DEMAND`."""
FromVersion = BeforeValidator(_version)
"""On a version as text: also an object with `version`, such as `eks.KubernetesVersion`."""


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


OnOff = Annotated[Literal["auto", "on", "off"], BeforeValidator(on_or_off)]
"""YAML 1.1 tools turn `on` and `off` into booleans: both forms are accepted."""
Cidr = Annotated[str, AfterValidator(_cidr)]
_AsOneOrSeveral = BeforeValidator(
    lambda given: (given,) if isinstance(given, str) else given, json_schema_input_type=Cidr | tuple[Cidr, ...]
)
Cidrs = Annotated[tuple[Cidr, ...], _AsOneOrSeveral, Field(min_length=1)]
"""One network, or several."""
PeerCidrs = Annotated[tuple[Annotated[Cidr, MaybeToken], ...], _AsOneOrSeveral, Field(min_length=1)]
"""The same, which may be tokens."""
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
S3Folder = Annotated[
    str,
    Text(
        rf"^{S3_FOLDER}/?$",
        "an address in S3: a bucket, and a prefix if you like, of letters, digits and _ . = + @ -",
        "s3://my-bucket/runs",
        max_length=255,  # a key has at most 1,024 bytes: the rest is for what is below
    ),
    MaybeToken,
    AfterValidator(lambda uri: uri.rstrip("/")),  # of one with tokens, too
]
"""A place in S3 for files of jobs, without a slash at the end. IAM's wildcards and a shell's signs are not in it."""
Version = Annotated[str, Text(r"^[0-9]+(\.[0-9]+)+$", "a version: numbers with dots between them", "2.33.0")]
InstanceTypeName = Annotated[
    str, Text(r"^[a-z][a-z0-9-]*\.[a-z0-9-]+$", "the name of an instance type", "trn2.48xlarge"), FromName
]
RootGib = Annotated[int, Field(ge=40, le=16384), MaybeNumberToken, FromGibibytes]
"""Size of a root volume, GiB."""
Days = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653]
