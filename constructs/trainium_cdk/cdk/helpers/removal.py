"""Removal policies: the effect of `cdk destroy` on data."""

from __future__ import annotations

from typing import Literal

from aws_cdk import RemovalPolicy

OnDestroy = Literal["delete", "keep"]


def removal_policy(on_destroy: OnDestroy) -> RemovalPolicy:
    """The CDK's removal policy for `on_destroy`. A replaced resource is treated like a destroyed one."""
    return RemovalPolicy.DESTROY if on_destroy == "delete" else RemovalPolicy.RETAIN
