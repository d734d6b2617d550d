"""The network interfaces of a Trainium node, by layout. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainium_cdk.description.catalog import InstanceType

Layout = Literal["efa", "efa-only", "ena-and-efa-only"]
Kind = Literal["interface", "efa", "efa-only"]


@dataclass(frozen=True)
class Interface:
    """One network interface of a launch template.

    Attributes:
        card: network card.
        device: device index on the card.
        kind: EC2's interface type; `efa-only` carries only EFA, and has no IP address.
    """

    card: int
    device: int
    kind: Kind


def interfaces(instance: InstanceType, layout: Layout) -> tuple[Interface, ...]:
    """All EFA interfaces of an instance type; empty if it has no EFA: EC2 then creates one interface.

    Card 0, device 0 has the node's own address, so it is never `efa-only`. Three layouts are in use for these instances:

    - `efa`: EFA with an address on each card, as in the hand-written tutorials. A node needs as many addresses as it has cards.
    - `efa-only`: EFA with an address on card 0, `efa-only` on the others.
    - `ena-and-efa-only`: plain ENA on card 0, and `efa-only` on every card (EC2 user guide, EFA on accelerated instances).
    """
    count = instance.efa_interfaces
    if not count:
        return ()
    if layout == "ena-and-efa-only":
        first = (Interface(0, 0, "interface"), Interface(0, 1, "efa-only"))
        return first + tuple(Interface(card, 0, "efa-only") for card in range(1, count))
    others: Kind = "efa" if layout == "efa" else "efa-only"
    return (Interface(0, 0, "efa"), *(Interface(card, 1, others) for card in range(1, count)))
