"""Which nodes a verification uses: what AWS has, asked before the plan."""

from __future__ import annotations

import datetime as dt

from trainium_cdk.catalog import Catalog
from trainium_cdk.checks.live import Aws
from trainium_cdk.checks.live.regions import ACTIONS, Wanted, ask, ways
from trainium_cdk.errors import AwsError, TrnError
from trainium_cdk.operations.verify.guard import Client
from trainium_cdk.operations.verify.plan import Block, regions, types


def can_start(engine: str, region: str | None) -> tuple[str, str]:
    """The cheapest instance type of which a node can start now on demand, and the region, as `trn capacity` finds them.

    Raises:
        TrnError: none can start.
    """
    catalog, now, why = Catalog.load(), dt.datetime.now(dt.UTC), ""
    for plan in types(engine):
        at = regions(plan.instance_type, region)
        if not at:
            continue
        usd = {one: catalog.prices[one][plan.instance_type] for one in at}
        wanted = Wanted(catalog, catalog.instance(plan.instance_type), 1, 24, now, usd)
        try:
            supplies, _ = ask(Aws(at[0], quick=True).limited_to(ACTIONS), wanted, at)
        except AwsError as e:
            raise TrnError(f"cannot ask AWS what can start: {e}. Give --instance-type and --region") from None
        for supply, way in ways(supplies):
            if way.capacity_type == "on-demand" and way.start is not None and way.start <= now:
                return plan.instance_type, supply.region
            why = why or way.note or supply.note
    raise TrnError(
        f"no node can start now on demand{f' in {region}' if region else ''}{f': {why}' if why else ''}. Ask for quota (trn check says which), "
        "or give --instance-type and --region"
    )


def block(client: Client, id: str) -> Block:
    """A capacity block of the account, by its id.

    Raises:
        TrnError: there is none of that id in the region, or it is not active.
        botocore.exceptions.ClientError, BotoCoreError: AWS refuses, or does not respond.
    """
    ec2 = client("ec2")
    region = ec2.meta.region_name
    found = ec2.describe_capacity_reservations(Filters=[{"Name": "instance-platform", "Values": ["Linux/UNIX"]}])
    one = next((r for r in found["CapacityReservations"] if r["CapacityReservationId"] == id), None)
    if one is None:
        raise TrnError(f"there is no capacity block {id} in {region}. Give its own --region")
    if one["State"] != "active":
        raise TrnError(f"capacity block {id} is {one['State']}. Run this while it is active")
    return Block(id, one["InstanceType"], region, one["AvailabilityZoneId"], one["AvailableInstanceCount"])
