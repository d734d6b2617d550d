"""The CDK's interfaces together with the classes that implement them.

To pyright the classes are not the interfaces: in the Python that jsii generates, names of some parameters differ. Arguments of public
constructs have these types, so that a `Role` can be given where an `IRole` is expected.
"""

from __future__ import annotations

from typing import TypeAlias

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

AnyKey: TypeAlias = kms.IKey | kms.Key
AnyPrincipal: TypeAlias = iam.IPrincipal | iam.PrincipalBase
AnyRole: TypeAlias = iam.IRole | iam.Role
