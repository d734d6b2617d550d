"""Attributes that never change, for which the CDK's Node process is asked only once: each request takes about a millisecond."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from aws_cdk import Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import IDependable

T = TypeVar("T")
V = TypeVar("V")


def once(read: Callable[[T], V]) -> Callable[[T], V]:
    """Read an attribute of each object only once."""
    known: WeakKeyDictionary[T, V] = WeakKeyDictionary()

    @wraps(read)
    def reading(resource: T) -> V:
        if resource not in known:
            known[resource] = read(resource)
        return known[resource]

    return reading


@once
def group_id(group: ec2.ISecurityGroup) -> str:
    return group.security_group_id


@once
def subnet_id(subnet: ec2.ISubnet) -> str:
    return subnet.subnet_id


@once
def routes(subnet: ec2.ISubnet) -> IDependable:
    return subnet.internet_connectivity_established


@once
def role_arn(role: iam.IRole) -> str:
    return role.role_arn


@once
def to_gibibytes(size: Size) -> float:
    return size.to_gibibytes()


@cache
def gibibytes(number: float) -> Size:
    return Size.gibibytes(number)
