"""The reference of the instance types, from the catalogue."""

from __future__ import annotations

import yaml

from sandbox.paths import HOME as ROOT
from tools.reference.markdown import plain
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.constants import ULTRASERVER
from trainium_cdk.description.catalog.models import TITLES


def page() -> str:
    """The page."""
    known = Catalog.load()
    ended = "".join(f"- {plain(reason)}.\n" for name in TITLES if (reason := known.ended(name)))
    parts = [
        "# Instance types\n\n"
        "What AWS recommends for each type, and what `trn init --instance-type TYPE` writes. The kinds of jobs run there as the file is. "
        "On Kubernetes, jobs on TorchNeuron need `--image`, the address that `trn image build` prints.\n\n"
        "Trn3 is as Trn2. EC2's data of its types is not published: describe the type under `catalog.instances` first.\n\n"
        f"{ended}- UltraServers (`trn2u`): {plain(ULTRASERVER)}.\n"
    ]
    for name, type in known.instances.items():
        lines = [
            f"{_count(type.neuron_devices, 'Neuron device')}, {type.logical_cores()} NeuronCores by default, {type.hbm_gib} GiB of device memory",
            f"{type.vcpus} vCPUs, {type.memory_gib} GiB of memory"
            + (f", {_count(type.efa_interfaces, 'EFA interface')}" if type.efa_interfaces else ", no EFA"),
            f"bought {', '.join(type.capacity_types)}",
            f"offered in {', '.join(_priced(known, name, region) for region in sorted(known.regions_of(name)))}",
        ]
        if of := known.recommended(name):
            kinds = ", ".join(f"`{kind}`" for kind in of.kinds)
            lines.insert(0, f"**{TITLES[of.framework]}**, Neuron SDK {of.release}: {kinds}")
        lines += [f"an hour of a cluster on {on}, idle and full: {cost}" for on, cost in _costs(name).items()]
        parts.append(f"## {name}\n\n" + "".join(f"- {line}\n" for line in lines))
    parts.append(
        "\nPrices behind regions are USD for an hour of one node, on demand. A cluster is what `trn init` writes for the type, with all its "
        "nodes when it is full. A star marks the price of a capacity block, where AWS publishes no other. "
        "`trn cost` has the source and date of each price.\n"
    )
    return "\n".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _costs(type: str) -> dict[str, str]:
    rows = yaml.safe_load((ROOT / "tests/cli/costs.yaml").read_text("utf-8"))
    [row] = [row for row in rows if row["type"] == type]
    return {
        name: cost for name, cost in row.items() if name not in ("type", "region", "a node") and "unknown" not in cost
    }


def _priced(known: Catalog, type: str, region: str) -> str:
    usd, source = known.price(type, region), known.price_source(type, region)
    star = "\\*" if source and source.capacity_block else ""
    return region if usd is None else f"{region} ({usd:,.2f}{star})"
