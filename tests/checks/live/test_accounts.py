"""What else the account has that the cluster depends on, in the local AWS: principals and keys."""

from __future__ import annotations

from sandbox import LocalAws
from tests.checks.live.conftest import Trn, report, wrong


def test_the_printed_arn_of_a_role_of_a_session_is_accepted(trn: Trn, aws: LocalAws) -> None:
    """Sessions do not show the path of their role, which those of Identity Center have."""
    name, iam = "AWSReservedSSO_Admin_0123456789abcdef", aws.client("iam")
    real = iam.create_role(
        RoleName=name, Path="/aws-reserved/sso.amazonaws.com/eu-west-1/", AssumeRolePolicyDocument="{}"
    )["Role"]["Arn"]
    text = "eks: {access: [{principal: 'ARN'}], users: ['ARN']}"
    rebuilt = (f"arn:aws:sts::000000000000:assumed-role/{name}/alice", f"arn:aws:iam::000000000000:role/{name}")
    try:
        for arn in rebuilt:
            printed = trn(text.replace("ARN", arn, 1).replace("'ARN'", ""), "TrnEksStack").stdout
            assert f"Fix: write {real}" in printed
        asked = wrong(report(text.replace("ARN", rebuilt[1]), "eks"))
        assert asked["roles-with-access"].count(f"write {real}") == 2
        assert wrong(report(text.replace("ARN", real), "eks")) == {}
    finally:
        iam.delete_role(RoleName=name)
