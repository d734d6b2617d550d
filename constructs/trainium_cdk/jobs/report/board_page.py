"""The page of all clusters, for a browser. Pure. It needs no script: orders and filters are links, which the keyboard reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from urllib.parse import urlencode
from xml.etree.ElementTree import Element

from trainium_cdk.drawing.markup import element
from trainium_cdk.jobs.clusters import Overview
from trainium_cdk.jobs.report.board import CLUSTER, JOB, LIVE, RIGHT, SORTS, Choice, Shown, jobs, owners, told, totals
from trainium_cdk.jobs.report.page import document
from trainium_cdk.jobs.report.text import moment

REFRESH = 15
"""Seconds after which a browser loads the page again."""
_STILL = "still"


def choice_of(asked: Mapping[str, str]) -> Choice:
    """What a request chooses."""
    return Choice(**{name: asked[name] for name in ("cluster", "owner", "sort") if name in asked})


def page(
    found: Sequence[Overview],
    notes: Sequence[str],
    now: float,
    asked: Mapping[str, str] | None = None,
    *,
    complete: bool = True,
    sandbox: bool = False,
) -> str:
    """The page.

    Args:
        notes: why regions could not be read.
        asked: parameters of the request.
        complete: whether all regions were read.
        sandbox: whether they are of the sandbox, and the page says so.
    """
    asked = asked or {}
    choice, still = choice_of(asked), _STILL in asked
    here = [one for one in found if choice.cluster in ("", one.key)]
    none = "There is no cluster of trainium-cdk." if complete else "Looking for clusters ..."
    body = element(
        "body", element("h1", "Clusters"), element("p", f"{totals(found)}; {moment(now)}" if found else none, class_="note"),
        *(element("p", note, class_="failed") for note in notes),
        *([_clusters(here, choice, now), *_jobs(found, choice, now)] if found else []),
        element("footer", element("p", *_footer(choice, still=still), class_="note")),
        class_="full",
    )  # fmt: skip
    return document("Clusters", body, None if still else REFRESH, sandbox=sandbox)


def _link(text: str, choice: Choice, **more: str) -> Element:
    chosen = {name: value for name, value in asdict(choice).items() if value and value != getattr(Choice, name)}
    return element("a", text, href=f"?{urlencode({**chosen, **more})}")


def _clusters(found: Sequence[Overview], choice: Choice, now: float) -> Element:
    rows = []
    for one in found:
        cells: list[Element | str] = [CLUSTER[name](one) for name in LIVE]
        cells[LIVE.index("stack")] = _link(one.stack, replace(choice, cluster=one.key))
        rows.append(_row(LIVE, cells))
        if said := told(one, now):
            rows.append(element("tr", element("td", ""), element("td", said, colspan=len(LIVE) - 1, class_="bad")))
    return _table(LIVE, rows)


def _jobs(found: Sequence[Overview], choice: Choice, now: float) -> list[Element]:
    def filters(name: str, values: Sequence[tuple[str, str]]) -> Element:
        chosen = getattr(choice, name)
        parts: list[Element | str] = [f"{name}:"]
        for value, text in values:
            parts += [
                " ",
                element("strong", text) if value == chosen else _link(text, replace(choice, **{name: value})),
            ]
        return element("p", *parts, class_="choices")

    every = [("", "all")]
    parts = [
        element("h2", "Jobs"),
        filters("cluster", [*every, *((one.key, one.stack) for one in found)]),
        filters("owner", [*every, *((name, name) for name in owners(found))]),
        filters("sort", [(name, name) for name in SORTS]),
    ]
    chosen = jobs(found, choice, now)
    if not chosen:
        return [*parts, element("p", "None run or wait, and none ended within a day.")]
    return [*parts, _table([*JOB], [_row([*JOB], _job(row)) for row in chosen])]


def _job(row: Shown) -> list[Element | str]:
    cells: list[Element | str] = [draw(row) for draw in JOB.values()]
    if row.job.client == "trn":
        asked = {"job": row.job.id, "on": row.cluster.key, "team": row.job.team}
        cells[0] = element("a", row.job.id, href=f"?{urlencode(asked)}")
    return cells


def _row(names: Sequence[str], cells: Sequence[Element | str]) -> Element:
    made = (
        element("td", cell, class_="number" if name in RIGHT else None) for name, cell in zip(names, cells, strict=True)
    )
    return element("tr", *made)


def _table(names: Sequence[str], rows: Sequence[Element]) -> Element:
    head = element(
        "tr", *(element("th", name, scope="col", class_="number" if name in RIGHT else None) for name in names)
    )
    return element("div", element("table", element("thead", head), element("tbody", *rows)), class_="wide")


def _footer(choice: Choice, *, still: bool) -> list[Element | str]:
    again: list[Element | str] = (
        ["The page stays as it is. ", _link("Load it again every 15 s", choice)]
        if still
        else ["Loaded again every 15 s. ", _link("Keep it as it is", choice, **{_STILL: "1"})]
    )
    return [
        *again,
        ". USD: nodes on demand at the catalogue's prices, of a job for the last attempt of each stage; not in it: storage, network, head "
        "nodes and control planes. Jobs that have ended are shown for a day.",
    ]
