"""Environments, and what is reported about them. In the files, each environment is followed by a line of the key and part of the message:

    => eks.version: EKS does not create clusters of this version any more
    => info region: ...
    => region = us-east-9: ... (with the value as it is shown)

In `refused` and `shape` (those that are no environment at all) it is an error, else the level is given. `##` begins a comment.
"""

from __future__ import annotations

import re
from pathlib import Path

_HERE = Path(__file__).parent / "reported"
_CASE = re.compile(r"(.*?)^=> (?:(info|warning) )?([^\n]+?): ([^\n]*)\n", re.DOTALL | re.MULTILINE)


def _read(place: str) -> list[tuple[str, str, str, str]]:
    """(environment, level, key, message) of each case of the files."""
    texts = [re.sub(r"^##.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE) for file in sorted(_HERE.glob(place))]
    assert not [text for text in texts if _CASE.sub("", text)], "an environment without a line of what is reported"
    return [(yaml.strip("\n"), *told) for text in texts for yaml, *told in _CASE.findall(text)]


def _refused(place: str) -> list[tuple[str, str, str]]:
    return [(yaml, key, message) for yaml, _, key, message in _read(place)]


def _flow(form: str, count: int) -> str:
    return ", ".join(form % i for i in range(count))


REFUSED = [
    *_refused("refused-*.txt"),
    (
        f"pcluster: {{queues: [{_flow('{name: q%d}', 50)}]}}  # <-",
        "pcluster.queues",
        "51 queues, the CPU queue included: a cluster can have at most 50 queues. Fix: combine queues, as a queue can have several compute "
        "resources, or write cpu_queue: null",
    ),
    (
        f"pcluster: {{cpu_queue: null, queues: [{_flow('{name: q%d}', 51)}]}}  # <-",
        "pcluster.queues",
        "51 queues: a cluster can have at most 50 queues. Fix: combine queues, as a queue can have several compute resources.",
    ),
    (
        f"pcluster: {{queues: [{_flow('{name: q%d, compute_resources: [{name: a}, {name: b}]}', 26)}]}}  # <-",
        "pcluster.queues",
        "a cluster can have at most 50 compute resources in all queues together",
    ),
    (f"tags: {{{_flow('t%d: x', 40)}}}  # <-", "tags", "a cluster can have at most 39 tags"),
    (
        f"pcs: {{size: medium, cpu_queue: null, queues: [{_flow('{name: q%02d, compute_resources: [{max_nodes: 1}]}', 10)}]}}  # <-",
        "pcs.queues",
        "a cluster has at most 10 node groups: one for the login node and, here, 10 for compute resources. Fix: remove",
    ),
    (
        f"pcs: {{size: medium, queues: [{_flow('{name: q%02d, compute_resources: [{max_nodes: 1}]}', 9)}]}}  # <-",
        "pcs.queues",
        "9 for compute resources, one for the CPU queue. Fix: write cpu_queue: null, remove compute resources, or",
    ),
]
SHAPE = [
    *_refused("shape.txt"),
    (
        f"eks: {{endpoint: public, public_cidrs: [{_flow('203.0.%d.0/24', 41)}]}}  # <-",
        "eks.public_cidrs",
        "it has 41 items, and may have 40. Fix: remove some",
    ),
    (
        f"eks: {{data_buckets: [{_flow('corpus-%d', 101)}]}}  # <-",
        "eks.data_buckets",
        "it has 101 items, and may have 100. Fix: remove some",
    ),
    (
        f"eks: {{node_groups: [{{user_data: '#!/bin/sh # {'ä' * 6000}'}}]}}  # <-",
        "eks.node_groups[0].user_data",
        "it has 12,012 bytes in UTF-8, and EC2 accepts 12,000 in addition to the stack's own user data",
    ),
]
NOTICES = [
    *_read("notices.txt"),
    (
        f"pcluster: {{queues: [{_flow('{name: q%d}', 20)}]}}",
        "warning",
        "pcluster.queues",
        "with 20 queues or more, cluster updates may fail: the head node has 30 s to read the launch templates of all queues. Fix",
    ),
    (
        f"pcluster: {{node_policies: [{_flow('arn:aws:iam::111122223333:policy/parallelcluster/p%d', 8)}]}}",
        "warning",
        "pcluster.node_policies",
        "IAM allows 10 policies on a role where the account's quota was not raised, and the head node's has 3 others: the cluster's creation",
    ),
    (
        f"eks: {{users: [{_flow('arn:aws:iam::111122223333:user/researcher-%02d', 40)}]}}",
        "warning",
        "eks.users",
        "the trust policy of the role that `trn` takes has 2,071 characters, and IAM accepts 2,048 where the account's quota was not raised",
    ),
]
