"""The role behind a session of STS, which shows the role's name but not its path."""

from __future__ import annotations

from typing import NamedTuple

SSO_NAME = "AWSReservedSSO_"
"""How the names of the roles begin that IAM Identity Center makes (its user guide, "Referencing permission sets", 2026-11)."""
SSO_PATH = "aws-reserved/sso.amazonaws.com/"
"""How their path begins. The region of Identity Center follows, where that is not us-east-1."""


class Principal(NamedTuple):
    """An IAM role or user.

    Attributes:
        path: of the name, as `aws-reserved/sso.amazonaws.com/`; empty for the root of the account.
        session: whether it was read from the ARN of a session, so that its path is not known.
    """

    partition: str
    account: str
    kind: str
    path: str
    name: str
    session: bool = False

    @property
    def lacks_its_path(self) -> bool:
        """True if this is a role of Identity Center without the path that each of them has."""
        return self.kind == "role" and not self.path and self.name.startswith(SSO_NAME)

    @property
    def look_up(self) -> str:
        """The command that prints its ARN."""
        return f"aws iam get-{self.kind} --{self.kind}-name {self.name} --query {self.kind.title()}.Arn --output text"


def principal(arn: str) -> Principal | None:
    """The role or user of an ARN of IAM, or the role of an ARN of an STS session; None for anything else.

    Args:
        arn: of six parts. Tokens of the CDK may stand for whole parts.
    """
    _, partition, service, _, account, resource = (*arn.split(":", 5), *[""] * 5)[:6]
    kind, _, rest = resource.partition("/")
    if (service, kind) == ("sts", "assumed-role"):
        return Principal(partition, account, "role", "", rest.partition("/")[0], session=True)
    if service == "iam" and kind in ("role", "user"):
        path, slash, name = rest.rpartition("/")
        return Principal(partition, account, kind, path + slash, name)
    return None
