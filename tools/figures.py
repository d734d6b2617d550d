"""The drawings of the docs, as SVG: what costs when, from the catalogue, and a job that hangs, from its record. `make pictures` writes them."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree.ElementTree import Element, indent, tostring

from trainium_cdk import settings
from trainium_cdk.client.drawing import element
from trainium_cdk.description.checks.live import CheckTarget
from trainium_cdk.description.checks.live.cost import items

HANG = Path(__file__).parent / "reference/hang.log"
REGION, TYPE, SMALL, MOST = "sa-east-1", "trn2.3xlarge", "c5.2xlarge", 4
STACK, QUEUE = "TrnPclusterStack", "compute1"
DEFAULT = f"""
region: {REGION}
pcluster:
  queues: [{{name: {QUEUE}, compute_resources: [{{name: trn, instance_type: {TYPE}, max_nodes: {MOST}}}]}}]
  cpu_queue: {{instance_type: {SMALL}}}
storage: {{efs: {{throughput: elastic}}}}
"""
_STYLE = """
text { font: 14px system-ui, sans-serif; fill: #222 } .b { font-weight: 600 } .s { font-size: 12.5px } .u { text-anchor: end } .m { text-anchor: middle }
.page { fill: #fff } .box { fill: none; stroke: #888 } .always { fill: #fff1d6; stroke: #b26a00 } .run { fill: #e3ecff; stroke: #2f5fd0 }
.free { fill: #f2f2f2; stroke: #888 } .line { fill: none; stroke: #2f5fd0; stroke-width: 2.5 } .axis { stroke: #888 } .grid { stroke: #ddd }
.wait { fill: #fff1d6 } .mark { fill: #b26a00 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e6e6 } .page { fill: #1e2129 } .always { fill: #4a3510; stroke: #e0a040 } .run { fill: #1d2f5c; stroke: #7fa2ff } .free { fill: #2b2f3a }
  .line { stroke: #7fa2ff } .grid { stroke: #3a3f4c } .wait { fill: #4a3510 } .mark { fill: #e0a040 } }
"""


def _svg(width: int, height: int, about: str, parts: list[Element]) -> str:
    page = element("rect", class_="page", width=width, height=height, rx=6)
    made = element(
        "svg", element("style", _STYLE), page, *parts,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", aria_label=about,
    )  # fmt: skip
    indent(made, "")
    return tostring(made, encoding="unicode") + "\n"


def _text(x: float, y: float, text: str, kind: str | None = None) -> Element:
    return element("text", text, x=x, y=y, class_=kind)


def _box(x: int, y: int, width: int, height: int, kind: str) -> Element:
    return element("rect", class_=kind, x=x, y=y, width=width, height=height, rx=5)


def costs() -> str:
    """An account, its stack, queue, nodes and a job: what costs, and when."""
    target = CheckTarget(settings.parse(DEFAULT), "slurm")
    idle = {one.what: one.idle or 0.0 for one in items(target)}

    def all_of(*words: str) -> float:
        return sum(usd for what, usd in idle.items() if any(word in what for word in words))

    rows = {
        "head node and its disk": all_of("head node"),
        "NAT gateway and its address": all_of("NAT gateway", "public address"),
    }
    rows["dashboard, metrics, key"] = sum(idle.values()) - sum(rows.values())
    node, small = (target.env.catalog.price(name, REGION) or 0.0 for name in (TYPE, SMALL))
    parts, y = [_box(8, 8, 404, 510, "box"), _text(20, 32, "Your AWS account", "b")], 54
    parts += [_text(20, y, "You pay a capacity block at its purchase, used or not.", "s")]
    parts += [_box(20, 68, 380, 438, "box"), _text(32, 92, f"Stack {STACK}", "b")]
    parts += [
        _box(32, 104, 356, 128, "always"),
        _text(44, 127, "From deploy to destroy", "b"),
        _text(376, 127, f"{sum(idle.values()):.2f} USD an hour", "b u"),
    ]
    for number, (name, usd) in enumerate(rows.items()):
        parts += [_text(44, 150 + 22 * number, name), _text(376, 150 + 22 * number, f"{usd:.2f}", "u")]
    parts += [_text(44, 216, "file system and logs"), _text(376, 216, "by what they store", "u")]
    parts += [_box(32, 244, 356, 250, "free"), _text(44, 267, f"Queue {QUEUE}", "b"), _text(376, 267, "free", "u")]
    parts += [_text(44, 287, "A waiting job costs nothing.", "s")]
    parts += [
        _box(44, 298, 332, 184, "run"),
        _text(56, 321, f"0 to {MOST} nodes {TYPE}", "b"),
    ]
    parts += [_text(56, 343, "each"), _text(364, 343, f"{node:g} USD an hour", "b u")]
    parts += [_text(56, 363, "from their start until 10 minutes after a job", "s")]
    parts += [_box(56, 374, 308, 96, "box"), _text(68, 397, "Job", "b")]
    parts += [_text(68, 419, "prepare, first: on a small node"), _text(352, 419, f"{small:.2f}", "u")]
    parts += [
        _text(68, 441, "precompile, train: on all of its nodes"),
        _text(68, 460, "checkpoints: on the file system", "s"),
    ]
    return _svg(
        420,
        526,
        "An AWS account holds a stack, a stack a queue, a queue nodes, and nodes run a job; with USD an hour",
        parts,
    )


def hang() -> str:
    """The steps of a recorded job over time: it hangs, restarts from its checkpoint, and ends."""
    lines = HANG.read_text("utf-8").splitlines()
    done = [(one["time"], one["step"]) for line in lines if line.startswith("{") for one in [json.loads(line)]]
    began, ended = done[0][0], done[-1][0]
    last = next(i for i, (one, two) in enumerate(pairwise(done)) if two[1] <= one[1])
    before, after = done[: last + 1], done[last + 1 :]
    left, top, width, height = 44, 46, 420, 200

    def x(at: float) -> float:
        return float(left + width * (at - began) / (ended - began))

    def y(step: float) -> float:
        return top + height * (1 - step / 60)

    def path(points: list[tuple[float, int]]) -> Element:
        return element("path", class_="line", d="M" + " L".join(f"{x(at):.1f} {y(step):.1f}" for at, step in points))

    stop, again = before[-1], after[0]
    parts = [element("rect", class_="wait", x=x(stop[0]), y=top, width=x(again[0]) - x(stop[0]), height=height)]
    for step in range(0, 61, 20):
        parts += [
            element("line", class_="grid", x1=left, x2=left + width, y1=y(step), y2=y(step)),
            _text(left - 6, y(step) + 5, str(step), "u s"),
        ]
    for minute in range(0, int((ended - began) / 60) + 1, 2):
        parts.append(_text(x(began + 60 * minute) - 4, top + height + 18, str(minute), "s"))
    parts += [_text(left, top - 26, "step", "s"), _text(left + width, top + height + 34, "minutes", "u s")]
    parts += [path(before), path(after)]
    middle, seen = (x(stop[0]) + x(again[0])) / 2, next(line for line in lines if line.startswith("trn: restart"))
    quiet = re.findall(r"no step for [^(]*min", seen)[0]
    for number, line in enumerate((f"{quiet}:", "it hangs, and restarts")):
        parts.append(_text(middle, top + 24 + 18 * number, line, "b m"))
    for at, step in (stop, again):
        parts.append(element("circle", class_="mark", cx=x(at), cy=y(step), r=4))
    parts.append(_text(x(stop[0]) + 9, y(stop[1]) + 5, f"last step: {stop[1]}", "s"))
    parts.append(_text(x(again[0]) - 9, y(again[1]) + 5, f"from its checkpoint: {again[1]}", "u s"))
    about = f"Steps of a job over time. {quiet} after step {stop[1]}: it hangs, and restarts at step {again[1]}. It ends at step {after[-1][1]}"
    return _svg(480, top + height + 44, about, parts)


FIGURES = {"what-costs.svg": costs, "hang.svg": hang}
