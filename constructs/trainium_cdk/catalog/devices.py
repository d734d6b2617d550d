"""Evidence of a broken Neuron device."""

from __future__ import annotations

from trainium_cdk.catalog.lookup import read


def device_counters() -> tuple[str, ...]:
    """Files of the driver whose numbers rise with each error that a device's memory could not correct, by their names."""
    return tuple(read("devices")["counters"])
