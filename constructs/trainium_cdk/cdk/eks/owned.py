"""The Kubernetes objects of a stack: labelled, listed, and removed when the stack does not have them any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from aws_cdk import Annotations, CustomResource, Duration, IgnoreMode
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as functions
from constructs import Construct, IDependable

from trainium_cdk.cdk.eks.access import OBJECTS
from trainium_cdk.cdk.eks.access_entry import entry_of_function
from trainium_cdk.cdk.eks.installation import Manifest
from trainium_cdk.cdk.eks.scaler import leaving
from trainium_cdk.cdk.eks.view import AnyCluster, ClusterView, client_group, refuse_config_map
from trainium_cdk.cdk.helpers.custom_resources import custom_resource, permissions_of
from trainium_cdk.cdk.helpers.functions import function_role, log_group, name_permission
from trainium_cdk.cdk.helpers.paths import digest, path_of
from trainium_cdk.cdk.helpers.permissions import allow
from trainium_cdk.cdk.helpers.stack_wide import StackPart, once, stack_of

_KIND = "TrnOwnedObjects"
_MINUTES = 4
"""The function waits at most a minute for each of four kinds."""
_EVERY = Duration.hours(1)


def owner_of(scope: Construct) -> str:
    """The value of the label of the objects of a construct: from the stack's name and the path below it, which stay if the stack moves."""
    stack = stack_of(scope)
    while parent := once(stack, "nested_stack_parent"):
        stack = parent
    path = path_of(scope).removeprefix(path_of(stack)).replace("/Default/", "/")
    return digest(f"{once(stack, 'stack_name')}{path}")


def owned(objects: Iterable[Manifest], owner: str) -> list[Manifest]:
    """The objects with the labels of their owner. Definitions of kinds have none: no one removes them."""
    return [one if one["kind"] == "CustomResourceDefinition" else _labelled(one, owner) for one in objects]


def _labelled(one: Manifest, owner: str) -> Manifest:
    metadata = one["metadata"]
    return {**one, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), leaving.LABEL: owner}}}


def names_by_kind(objects: Iterable[Manifest]) -> dict[str, list[str]]:
    """The names of objects by kind, for the function: NAMESPACE/NAME for those in a namespace; `EACH` for what each namespace has,
    so that many teams fit into a template."""
    found: dict[str, dict[str, set[str]]] = {}
    for one in objects:
        if leaving.LABEL in one["metadata"].get("labels", {}):
            name = leaving.name_of(one)
            space = one["metadata"].get("namespace") or one.get("spec", {}).get("claimRef", {}).get("namespace", "")
            found.setdefault(one["kind"], {}).setdefault(name.removeprefix(space), set()).add(space)
    spaces = max(found.get("ServiceAccount", {}).values(), key=len, default=set())
    listed = {
        kind: sorted(
            f"{each}{rest}"
            for rest, has in names.items()
            for each in ([leaving.EACH] if has == spaces else sorted(has))
        )
        for kind, names in sorted(found.items())
    }
    return {leaving.EACH: sorted(spaces), **listed}


def reaches_api(scope: Construct, view: ClusterView, cluster: AnyCluster, subnets: ec2.SubnetSelection | None) -> bool:
    """Return whether the function can be created for a cluster. If not, the deployment prints the reason."""
    try:
        refuse_config_map(scope, cluster)
        if subnets or view.subnets or view.vpc.private_subnets:
            return True
        why = "its VPC has no private subnets; give vpc_subnets"
    except ValueError as error:
        why = str(error).partition(": ")[2]
    text = f"Kubernetes objects that a later update takes out (teams, node groups, file systems) stay in the cluster: {why}"
    Annotations.of(scope).add_info(text)
    return False


class OwnedObjects(StackPart):
    """The function that removes the objects which leave the stack, and the resource that calls it after each change.

    It also runs once an hour, for what had to stay because of jobs. In Kubernetes it may list and delete only the kinds of the stack's
    objects.

    Args:
        objects: all objects that the stack has now, labelled.
        after: resources that apply them.
        subnets: of the function. Default: the private subnets of the cluster's VPC.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        view: ClusterView,
        owner: str,
        objects: Sequence[Manifest],
        after: Sequence[IDependable],
        subnets: ec2.SubnetSelection | None = None,
    ) -> None:
        super().__init__(scope, id)
        log = log_group(self)
        role, _ = function_role(self, log, [allow(view.arn, "eks:DescribeCluster")], in_vpc=True)
        self.function = functions.Function(
            self,
            "Resource",
            description=f"Removes Kubernetes objects of {view.name} that were taken out of its stack",
            code=functions.Code.from_asset(
                str(Path(__file__).parent),
                exclude=["*", "!scaler", "scaler/*", "!scaler/*.py"],
                ignore_mode=IgnoreMode.GIT,
            ),
            handler="scaler.objects.handler",
            runtime=functions.Runtime.PYTHON_3_14,
            memory_size=256,
            timeout=Duration.minutes(_MINUTES),
            role=role,
            log_group=log,
            vpc=view.vpc,
            vpc_subnets=subnets or (ec2.SubnetSelection(subnets=view.subnets) if view.subnets else None),
            security_groups=[view.clients or client_group(self, view)],
            environment={"CLUSTER": view.name, "OWNER": owner},
        )
        entry = entry_of_function(self, self, cluster_name=view.reference, role=role, group=OBJECTS)
        arn = self.function.function_arn
        permissions = permissions_of(self, _KIND).add(self, lambda: [allow(arn, "lambda:InvokeFunction")])
        self.resource: CustomResource = custom_resource(
            self,
            "Objects",
            kind=_KIND,
            properties={"Function": self.function.function_name, "Objects": names_by_kind(objects)},
            permissions=permissions,
            minutes=_MINUTES + 2,
        )
        self.resource.node.add_dependency(entry, *after)
        rule = events.Rule(
            self,
            "Rule",
            description=f"Removes what stayed in {view.name} because of jobs",
            schedule=events.Schedule.rate(_EVERY),
            targets=[targets.LambdaFunction(self.function)],
        )
        name_permission(rule)
