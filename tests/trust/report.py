"""The figures of a run of `make trust`, and the tables of the documentation made from them.

`python -m tests.trust.report` gathers what the run measured into docs/figures/trust.json and writes the tables again;
with `--render` it only writes the tables.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.trust import figures

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/figures/trust.json"
MUTATION = ROOT / "docs/figures/mutation.json"
BEGIN, END = "<!-- figures: make trust -->\n", "<!-- end of figures -->\n"
RUNS = ("faults", "random", "trust")
SHOWN = (
    "TrnPclusterStack/default",
    "TrnEksStack/default",
    "TrnPclusterStack/fsx-persistent-s3",
    "TrnEksStack/eks/all-settings",
)
"""Templates whose raw findings have a row each."""
PHASES = {
    "creation fails": "is rolled back",
    "deletion fails": "is finished by the next",
    "update fails": "the old state serves on",
}
_PASSING = re.compile(r"^\s+- (\d+) passing", re.M)

Figures = dict[str, Any]
"""`measured`: name -> what a test has written down. `cases`: test -> cases passed, and examples that Hypothesis drew."""


class Failed(Exception):
    """The run cannot be published."""


# --- gathering ---


def gather() -> Figures:
    """What the run has measured.

    Raises:
        Failed: part of it is missing, or did not pass.
    """
    cases: dict[str, dict[str, int]] = {}
    for run in RUNS:
        file = figures.FOLDER / f"{run}.xml"
        if not file.is_file():
            raise Failed(f"{file} is missing: make trust")
        cases |= passed(ElementTree.parse(file).getroot())  # noqa: S314  pytest wrote it
    measured = figures.read()
    if not measured.get("faults", {}).get("all_types_in_both_stacks"):
        raise Failed("faults were tried in part: FAULTS=all, and one process")
    if measured.get("histories", {}).get("histories", 0) < 200:
        raise Failed("histories of a cluster were tried in part: python -m pytest -m '' tests/trust/test_identity.py")
    if not measured.keys() >= {"permissions-slurm", "permissions-eks"}:
        raise Failed("the table of permissions was not evaluated: python -m pytest tests/audit/test_permissions.py")
    return {"measured": measured, "cases": cases}


def passed(report: ElementTree.Element) -> dict[str, dict[str, int]]:
    """Test -> its cases in a JUnit report of pytest, and what Hypothesis counted.

    Raises:
        Failed: not all of them passed.
    """
    found: dict[str, dict[str, int]] = {}
    bad = []
    for case in report.iter("testcase"):
        test = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        if {outcome.tag for outcome in case} & {"failure", "error", "skipped"}:
            bad.append(f"{test}: {', '.join(outcome.tag for outcome in case)}")
        found.setdefault(test, {"cases": 0})["cases"] += 1
    for entry in report.iter("property"):
        name = entry.get("name", "").removeprefix("hypothesis-statistics-")
        if name != entry.get("name"):
            text = base64.b64decode(entry.get("value", "")).decode()
            test = name.partition("[")[0]
            drawn = sum(map(int, _PASSING.findall(text)))
            found[test]["drawn"] = found[test].get("drawn", 0) + drawn
    if bad:
        raise Failed("\n".join(["not everything passed:", *sorted(set(bad))]))
    return found


# --- rendering ---


def trust(found: Figures) -> str:
    """The table of docs/trust.md, as `report.md` words it. A place `{...}` in it is a sum or difference of `<measurement>.<figure>`,
    `cases <test>` (the number of its cases; of all tests of a file: `cases tests/x.py::`), `drawn <test>` (by Hypothesis),
    `times <prefix>` (how often such a measurement was recorded), or `left <prefix>` (the sum of their leftovers)."""
    text = Path(__file__).with_name("report.md").read_text("utf-8")
    text = text.replace("SCANNERS\n", "".join(scanners(found))).replace("FAULTS\n", "".join(faults(found)))
    text = text.replace("MUTATION\n", "".join(mutation()))
    return re.sub(r"\{([^}]*)\}", lambda place: _total(found, place[1]), text)


def _total(found: Figures, terms: str) -> str:
    sign, total = 1, 0
    for term in re.split(r" ([+-]) ", terms):
        if term in ("+", "-"):
            sign = 1 if term == "+" else -1
        else:
            total += sign * _figure(found, term)
    if terms.startswith("times "):
        return "once" if total == 1 else f"{total} times"
    return f"{total:,}"


def _figure(found: Figures, term: str) -> int:
    measured, kind, name = found["measured"], *term.rpartition(" ")[::2]
    if kind in ("cases", "drawn"):
        cases: dict[str, dict[str, int]] = found["cases"]
        numbers = [n for test, n in cases.items() if test == name or (name.endswith("::") and test.startswith(name))]
        values = [n.get(kind, 0) for n in numbers]
    elif kind in ("times", "left"):
        numbers = [figure for test, figure in measured.items() if test.startswith(name)]
        values = [1 if kind == "times" else n["left"] for n in numbers]
    else:
        test, _, key = name.rpartition(".")
        values = [measured[test][key]] if key in measured.get(test, {}) else []
    if not values:
        raise Failed(f"{term!r} is not among what was run")
    return sum(values)


def scanners(found: Figures) -> Iterator[str]:
    from audit.scanners import OF_OBJECTS, OF_TEMPLATES

    audit = found["measured"]["audit"]
    alone = {
        "shellcheck": f"{audit['scripts']:,} scripts of jobs, those of nodes and builds",
        "bandit": "all Python but tests",
        "detect-secrets": "every file but lock files",
    }
    for name, counts in audit["scanners"].items():
        outcome = f"{counts['open']} open, {counts['acknowledged']:,} acknowledged"
        if name in OF_TEMPLATES:
            of = f"{audit['templates']} templates, {audit['resources']:,} resources"
            outcome += f"; raw, {(counts['open'] + counts['acknowledged']) / audit['resources']:.2f} per resource"
        else:
            of = f"{audit['objects']} files of Kubernetes objects" if name in OF_OBJECTS else alone[name]
        yield f"| {name} | {of} | {outcome} |  |\n"
    for subject in SHOWN:
        raw = audit["raw"][subject]
        each = [f"{name} {raw[name]} ({raw[name] / raw['resources']:.2f} each)" for name in OF_TEMPLATES if raw[name]]
        yield f"| `{subject}`, nothing acknowledged | {raw['resources']} resources | {', '.join(each) or 'none'} |  |\n"
    opened, known = (sum(counts[key] for counts in audit["scanners"].values()) for key in ("open", "acknowledged"))
    rules = f"{audit['rules']} rules, {audit['reasons']} reasons"
    yield f"| all of them |  | {opened} open; {known:,} acknowledged: {rules} |  |\n"


def faults(found: Figures) -> Iterator[str]:
    for stack, by in sorted(found["measured"]["faults"]["stacks"].items()):
        for phase, n in by.items():
            what = f"`{stack}`, each resource type: its {phase}, and {PHASES[phase]}"
            yield f"| {what} | {n['tried']} types | {n['survived']} survived | {n['left']} |\n"


def mutation() -> Iterator[str]:
    """Of another file: the run takes longer than all others. A first run without a date was of code whose tests were written for its seed."""
    for room, n in json.loads(MUTATION.read_text("utf-8")).items():
        changing = n["mutants"] - n["equivalent"]
        what = f"`{room}`: conditions, numbers, names, calls, returned values, loops, handled errors"
        tried = f"{n['mutants']} of {n['places']:,} places, seed {n['seed']}; {n['equivalent']} change nothing"
        runs = (("first run", n["first"]), ("with the tests that were strengthened for it", n))
        outcome = "; ".join(
            f"{name}: {r['killed']} of {changing} found ({r['killed'] / changing:.0%}), {r['date']} at {r['commit']}"
            for name, r in runs
            if r["date"]
        )
        yield f"| {what} | {tried} | {outcome} |  |\n"


def updates_and_destroy(found: Figures) -> str:
    """The table of docs/updates-and-destroy.md."""
    lines = ["| stack | what | tried | survived | left behind |", "|---|---|---|---|---|"]
    for stack, by in sorted(found["measured"]["faults"]["stacks"].items()):
        lines += [f"| {stack} | {p} | {n['tried']} | {n['survived']} | {n['left']} |" for p, n in by.items()]
    return "\n".join(lines) + "\n"


TABLES = {"docs/trust.md": trust, "docs/updates-and-destroy.md": updates_and_destroy}


# --- writing ---


def block(text: str) -> str:
    """The part of a document that is ours.

    Raises:
        Failed: it has none.
    """
    before, begin, rest = text.partition(BEGIN)
    ours, end, _ = rest.partition(END)
    if not begin or not end:
        raise Failed(f"a document has no {BEGIN.strip()} ... {END.strip()}: {before[:60]!r}")
    return ours


def render(found: Figures) -> None:
    """Write the tables into the documents."""
    for name, table in TABLES.items():
        document = ROOT / name
        text = document.read_text("utf-8")
        document.write_text(text.replace(f"{BEGIN}{block(text)}{END}", f"{BEGIN}{table(found)}{END}"), "utf-8")


def main(arguments: list[str]) -> int:
    """The exit code."""
    try:
        if "--render" not in arguments:
            found = gather()
            for table in TABLES.values():
                table(found)  # every table can be rendered, or nothing is written
            FIGURES.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", "utf-8")
        render(json.loads(FIGURES.read_text("utf-8")))
    except Failed as e:
        print(f"report: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
