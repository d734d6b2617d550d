"""The ends of a cluster's capacity blocks. EC2 tells them to whoever submits or asks, if they may know them."""

from __future__ import annotations

import time

from trainium_cdk.client.jobs.models import Plan
from trainium_cdk.client.jobs.words import seconds
from trainium_cdk.description.catalog.constants import BLOCK_STOPS_EARLY, BLOCK_STOPS_EARLY_ON_EKS
from trainium_cdk.description.outputs import Cluster
from trainium_cdk.runner.blocks import Block, clock
from trainium_cdk.runner.records import span

SAVES_EARLY = 300
"""Seconds before the first node of a block ends in which jobs save: each node looks every 30 seconds, and a program has 60 to save. On EKS the
function that starts nodes looks every minute."""
BLOCK = "capacity-block"


def ask(cluster: Cluster) -> tuple[list[Block], str]:
    """The capacity blocks of a cluster that has some, in one request; and why their ends are not known, empty if they are."""
    from botocore.exceptions import BotoCoreError, ClientError

    from trainium_cdk._aws import client, describe_error

    fleets = [f for f in cluster.fleets if f.reservation]
    early = BLOCK_STOPS_EARLY_ON_EKS if cluster.containers else BLOCK_STOPS_EARLY
    try:
        ids = sorted({f.reservation for f in fleets})
        told = client("ec2", cluster.region).describe_capacity_reservations(CapacityReservationIds=ids)
    except ClientError as e:
        denied = "Unauthorized" in e.response["Error"]["Code"]
        return [], "you lack ec2:DescribeCapacityReservations" if denied else str(e)
    except BotoCoreError as e:
        return [], describe_error(e)
    ends = {one["CapacityReservationId"]: one.get("EndDate") for one in told["CapacityReservations"]}
    return [
        Block(
            f.queue,
            f.resource,
            f.reservation,
            (stops := end.timestamp() - early) - SAVES_EARLY,
            stops,
            end.timestamp(),
        )
        for f in fleets
        if (end := ends.get(f.reservation))
    ], ""


def line(plan: Plan, blocks: list[Block], why: str) -> str:
    """Describe the capacity block in which a submitted job runs; empty if it is in none."""
    job, fleet = plan.job, plan.fleet
    if fleet.capacity_type != BLOCK:
        return ""
    own = [one for one in blocks if one.queue == fleet.queue and job.compute_resource in (None, one.resource)]
    if not own:
        reason = why or "it has none that EC2 tells"
        return f"when the capacity block of queue {fleet.queue} ends is not known: {reason}. The job does not save before it"
    block, now = min(own, key=lambda one: one.ends), time.time()
    asked = seconds(job.time_limit) if job.time_limit else None
    last = block.stops if job.past_block_end else block.saves
    if last <= now:
        return f"{block.text}: the job waits for the next block"
    if asked and now + asked <= last:
        return block.text
    wanted = f"you asked for {span(asked)}" if asked else "you gave no --time-limit"
    then = (
        "it is lost with its nodes" if job.past_block_end else "it saves, waits for the next block, and continues there"
    )
    return f"{block.text}; {wanted}. If it starts now it has {span(last - now)}, until {clock(last)}: then {then}"
