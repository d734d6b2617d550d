"""Resources of which there are several follow no position."""

from __future__ import annotations

from typing import Any

from aws_cdk import App
from aws_cdk.assertions import Template

from tests.cdk import resources
from trainium_cdk import settings
from trainium_cdk.stacks import TrnEksStack


def test_what_is_one_of_several_has_no_position() -> None:
    """Without the first of two teams, or of two users, all resources of the others are as they were: EKS refuses a second association of
    a namespace, and a second entry of a principal, while the first one is there."""
    users = [{"principal": f"arn:aws:iam::111122223333:role/{name}", "policy": "view"} for name in ("a", "b")]
    teams: list[dict[str, Any]] = [{"namespace": "speech"}, {"namespace": "vision"}]

    def built(first: int) -> dict[str, Any]:
        env = settings.validate({"eks": {"access": users[first:], "queues": teams[first:]}})
        found = Template.from_stack(TrnEksStack(App(), "Positions", environment=env))
        kinds = ("EKS::AccessEntry", "EKS::PodIdentityAssociation")
        return {key: one["Properties"] for kind in kinds for key, one in resources(found, kind).items()}

    both, one = built(0), built(1)
    assert one.items() <= both.items()
    assert len(both) - len(one) == 2
