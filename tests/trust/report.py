"""The figures of a run of `make trust`, and the tables of the documentation made from them.

`python -m tests.trust.report` gathers what the run measured into docs/figures/trust.json and writes the tables again;
with `--render` it only writes the tables.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from tests.trust import figures

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/figures/trust.json"
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


class Row(NamedTuple):
    what: str
    tried: str
    outcome: str
    left: str = ""


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
    """The table of docs/trust.md."""
    sections = (
        ("Scanners from other projects", "make audit", scanners(found)),
        ("Stacks in which a resource fails", "FAULTS=all python -m pytest tests/faults", faults(found)),
        ("Stacks created, changed and destroyed", "python -m pytest tests/stacks/test_deploy*.py tests/operations/teardown", lives(found)),
        ("Updates", "python -m pytest tests/operations/updates", updates(found)),
        ("Before spending: `trn preflight`", "python -m pytest tests/checks/live", preflight(found)),
        ("Jobs on a real Slurm", "python -m pytest tests/trust tests/jobs/test_ssm.py", slurm(found)),
        ("Jobs on a real Kubernetes API with Volcano", "python -m pytest tests/jobs/kubernetes", eks(found)),
        ("Input from others, and their permissions", "python -m pytest tests/jobs/test_build_context.py tests/jobs/test_unpack.py tests/cli/test_terminal.py tests/audit/test_permissions.py", others(found)),
        ("Bad input", "python -m pytest tests/trust tests/checks tests/settings tests/jobs tests/cli tests/test_outputs.py", inputs(found)),
    )  # fmt: skip
    lines = ["| what | tried | outcome | left behind |", "|---|---|---|---|"]
    for title, command, rows in sections:
        if rendered := [f"| {' | '.join(row)} |" for row in rows]:
            lines += [f"| **{title}** `{command}` | | | |", *rendered]
    return "\n".join(lines) + "\n"


def updates_and_destroy(found: Figures) -> str:
    """The table of docs/updates-and-destroy.md."""
    lines = ["| stack | what | tried | survived | left behind |", "|---|---|---|---|---|"]
    for stack, by in sorted(found["measured"]["faults"]["stacks"].items()):
        lines += [f"| {stack} | {p} | {n['tried']} | {n['survived']} | {n['left']} |" for p, n in by.items()]
    return "\n".join(lines) + "\n"


TABLES = {"docs/trust.md": trust, "docs/updates-and-destroy.md": updates_and_destroy}


def scanners(found: Figures) -> Iterator[Row]:
    from audit.scanners import OF_OBJECTS, OF_TEMPLATES

    audit = found["measured"]["audit"]
    alone = {
        "shellcheck": f"{audit['scripts']:,} scripts of jobs, those of nodes and builds",
        "bandit": "all Python but tests",
        "detect-secrets": "every file but lock files",
    }
    for name, counts in audit["scanners"].items():
        if name in OF_TEMPLATES:
            of = f"{audit['templates']} templates, {audit['resources']:,} resources"
        else:
            of = f"{audit['objects']} files of Kubernetes objects" if name in OF_OBJECTS else alone[name]
        outcome = f"{counts['open']} open, {counts['acknowledged']:,} acknowledged"
        if name in OF_TEMPLATES:
            outcome += f"; raw, {(counts['open'] + counts['acknowledged']) / audit['resources']:.2f} per resource"
        yield Row(name, of, outcome)
    for subject in SHOWN:
        if raw := audit.get("raw", {}).get(subject):
            figures = [
                f"{name} {raw[name]} ({raw[name] / raw['resources']:.2f} each)" for name in OF_TEMPLATES if raw[name]
            ]
            yield Row(
                f"`{subject}`, nothing acknowledged", f"{raw['resources']} resources", ", ".join(figures) or "none"
            )
    known = sum(counts["acknowledged"] for counts in audit["scanners"].values())
    yield Row(
        "all of them", "", f"{sum(counts['open'] for counts in audit['scanners'].values())} open; {known:,} acknowledged: "
        f"{audit['rules']} rules, {audit['reasons']} reasons"
    )  # fmt: skip


def faults(found: Figures) -> Iterator[Row]:
    for stack, by in sorted(found["measured"]["faults"]["stacks"].items()):
        for phase, n in by.items():
            what = f"`{stack}`, each resource type: its {phase}, and {PHASES[phase]}"
            yield Row(what, f"{n['tried']} types", f"{n['survived']} survived", str(n["left"]))


def lives(found: Figures) -> Iterator[Row]:
    for engine, stack in (("slurm", "TrnPclusterStack"), ("eks", "TrnEksStack")):
        what = f"`{stack}` with the real `cdk`: deployed, deployed again, changed, destroyed"
        yield Row(what, *_ends(found, f"life-{engine}-test_life", "the second deployment is no change"))
    refused = "a cluster that ParallelCluster's own validators reject, deployed and destroyed"
    yield Row(refused, *_ends(found, "life-slurm-test_what_parallelcluster_refuses", "rolled back, with their message"))
    yield Row(
        "`trn destroy` of what blocks a deletion, leaks, or has a similar name",
        *_ends(found, "destroyed-", "everything is deleted"),
    )


def _ends(found: Figures, prefix: str, outcome: str) -> tuple[str, str, str]:
    ends = [figure for name, figure in found["measured"].items() if name.startswith(prefix)]
    if not ends:
        raise Failed(f"nothing was recorded as {prefix}")
    return "once" if len(ends) == 1 else f"{len(ends)} times", outcome, str(sum(figure["left"] for figure in ends))


def updates(found: Figures) -> Iterator[Row]:
    table = "tests/operations/updates/test_pcluster.py::"
    yield Row(
        "changes of a cluster, there and back, compared with ParallelCluster's own update policy",
        f"{_cases(found, table + 'test_one_change')}, and {_drawn(found, table + 'test_several_changes_at_once')} random sets of them",
        "the same verdict",
    )  # fmt: skip
    yield Row(
        "update policies, path by path", f"{found['measured']['pcluster-policies']['paths']} paths", "the same policy"
    )
    yield Row("a deployment without a change", f"{found['measured']['redeploys']['templates']} templates", "no change")
    same = "tests/operations/updates/test_same_bytes.py::test_another_machine_synthesises_the_same_bytes"
    yield Row("synthesis elsewhere: folder, hash seed, time zone, locale", f"{_cases(found, same)}", "the same bytes")


def preflight(found: Figures) -> Iterator[Row]:
    measured = found["measured"]
    checks = measured["preflight"]
    yield Row("checks, each with requests to the local AWS", f"{checks['checks']}", f"{checks['answered']} answered")
    tables = (
        f"tests/checks/live/test_{part}.py::test_responses_are_evaluated"
        for part in ("account", "capacity", "existing")
    )
    yield Row(
        "responses of AWS, good and bad",
        f"{sum(_cases(found, t) for t in tables)}",
        "reported with level, value, reason and fix",
    )
    taken = sum(measured[f"preflight-permissions-{engine}"]["taken_away"] for engine in ("slurm", "eks"))
    yield Row("permissions removed, one at a time", f"{taken}", "the missing one is named, the other checks still run")


def slurm(found: Figures) -> Iterator[Row]:
    m = found["measured"]
    for which in ("first", "last"):
        n = m[f"node-death-{which}"]
        yield Row(
            f"the {which} of two nodes dies while it trains", f"after step {n['died_after_step']}",
            f"went on at step {n['resumed_at_step']}, from its checkpoint, to step {n['steps']}",
        )  # fmt: skip
    n = m["failed-precompile"]
    yield Row(
        "graphs do not compile",
        "1 job",
        "training did not run, and the reason is reported" if not n["train_ran"] else "training ran",
    )
    n = m["killed-clients"]
    yield Row("clients killed while they submit (SIGKILL), and run again", f"{n['killed']} kills", _jobs(n["jobs"], n))
    if "histories" in m:  # not among the figures of an older run; `gather` wants it
        yield from _histories(found, m["histories"])
    n = m["stopped-submissions"]
    yield Row(
        "Ctrl-C and SIGTERM while submitting",
        f"{n['stopped']} stops",
        f"{n['whole']} whole, {n['undone']} undone",
        f"{n['half_done']} half done",
    )
    yield from _cut_lines(m["submit-cuts"], m["follow-cuts"], ", through SSM")
    n = m["expired-credentials"]
    yield Row(
        "credentials that expire while following",
        "1 follower",
        f"reported within {n['reported_within_seconds']} s, {n['lost']} bytes lost",
    )
    n = m["burst-local"]
    yield Row(
        f"a burst, {n['clients']} clients", f"{n['submitted']:,} submissions",
        f"{_jobs(n['accepted'], n)}; {n['per_second']:.0f} a second, {n['ratio_to_bare_sbatch']} x the time of bare `sbatch`",
    )  # fmt: skip
    n = m["burst-ssm"]
    yield Row(
        f"a burst through SSM, {n['clients']} clients",
        f"{n['submitted']} submissions",
        f"{_jobs(n['accepted'], n)}; {n['seconds']} s",
    )
    stops = "tests/trust/test_stops.py::"
    signals = ("test_a_stopped_follower_prints_how_to_continue", "test_a_stopped_wait_does_not_affect_the_job",
               "test_a_stopped_destroy_can_be_continued", "test_an_unanswered_confirmation_deletes_nothing",
               "test_a_destroy_stopped_while_it_waits_for_jobs_deletes_nothing")  # fmt: skip
    yield Row(
        "Ctrl-C and SIGTERM while following, waiting, destroying, and at the confirmation prompt",
        f"{sum(_cases(found, stops + s) for s in signals)} stops", "exit code 130 or 143, one line about the state",
    )  # fmt: skip
    pipes = _cases(found, stops + "test_a_closed_pipe_ends_the_command")
    yield Row("readers that close the pipe early (`trn list \\| head`)", f"{pipes} commands", "no error message")
    states = _cases(found, "tests/jobs/test_ssm.py::test_the_final_state_of_a_command_is_reported")
    yield Row(
        "commands that SSM ends: undeliverable, timed out, terminated, denied",
        f"{states} states",
        "each reported as what it is",
    )
    n, aside = m["left-slurm"], m["answers-put-aside"]["folders"]
    yield Row(
        "after all of these", "", f"{aside} stored responses, which a command an hour later removes",
        f"{n['jobs']} jobs, {n['half_submissions']} half submissions",
    )  # fmt: skip


def _histories(found: Figures, n: Figures) -> Iterator[Row]:
    yield Row(
        "Slurm's controller killed (SIGKILL) while it accepts a job, or up to 3 s later",
        f"{n['kills']} kills, {n['compared']} jobs",
        f"{n['ran']} ran, {n['ran_without_resubmission']} of them without being submitted again as `trn` reports; {n['bare_ran']} of "
        f"{n['compared']} with bare `sbatch` beside them",
        f"{n['silent']} held or lost without a report",
    )
    yield Row(
        "job numbers that Slurm assigns again: submit, crash, a new cluster on the same file system, cancel, destroy, at random",
        f"{n['histories']} histories: {n['submitted']} jobs, {n['renewed']} new clusters, {n['cancelled']} cancellations, "
        f"{n['destroyed']} destructions",
        f"{n['acted_on_others']} actions on another's job",
    )
    forged = _cases(found, "tests/trust/test_forged.py::")
    yield Row(
        "jobs that forge or hide rows: their files, names, comments, directories",
        f"{forged} ways",
        "no other row changed",
    )


def _cut_lines(submitted: Figures, followed: Figures, way: str = "") -> Iterator[Row]:
    yield Row(
        f"submissions over a connection that is cut{way}",
        f"{submitted['submitted']} through {submitted['cuts']} cuts",
        _jobs(submitted["submitted"] - submitted["lost"], submitted),
    )
    yield Row(
        "a log followed over a connection that is cut",
        f"{followed['bytes']:,} bytes through {followed['cuts']} cuts",
        f"{followed['lost']} bytes lost or duplicated",
    )


def eks(found: Figures) -> Iterator[Row]:
    m = found["measured"]
    n = m["pod-death-kubernetes"]
    yield Row(
        "a pod of the gang is lost while it trains",
        "once",
        f"the gang went on from step {n['resumed_from_step']}, to step {n['last_step']} of {n['steps']}",
    )
    n = m["stopped-submissions-kubernetes"]
    yield Row(
        "Ctrl-C at each request of a submission, before and after it",
        f"{n['stopped']} stops",
        f"{n['whole']} whole, {n['stopped'] - n['whole']} undone",
        f"{n['half_done']} half done",
    )
    yield from _cut_lines(m["submit-cuts-kubernetes"], m["follow-cuts-kubernetes"])
    n = m["left-kubernetes"]
    yield Row("after all of these", "", "", f"{n['pods']} pods, {n['files']} files and locks without a job")


def others(found: Figures) -> Iterator[Row]:
    m = found["measured"]
    if "permissions-slurm" not in m:
        return  # the figures of an older run; `gather` wants it
    context, archive = "tests/jobs/test_build_context.py::test_", "tests/jobs/test_unpack.py::test_"
    links = (context + "links_that_leave_the_folder_are_refused", archive + "a_hostile_archive_is_refused",
             archive + "existing_links_are_never_followed")  # fmt: skip
    yield Row(
        "links and names in repositories and archives that lead out of their folder",
        f"{sum(_cases(found, t) for t in links)}, and {_drawn(found, archive + 'nothing_ever_leaves_the_folder')} archives at random",
        "refused; nothing outside was read, sent or written",
    )
    terminal = "tests/cli/test_terminal.py::"
    yield Row(
        "control characters in logs, outputs, names and errors, on a terminal",
        f"{_cases(found, terminal)} tests, {_drawn(found, terminal)} texts at random",
        "none reaches the terminal; a pipe gets every byte",
    )
    for engine, stack in (("slurm", "TrnPclusterStack"), ("eks", "TrnEksStack")):
        n = m[f"permissions-{engine}"]
        yield Row(
            f"permissions in `{stack}`: principal, action, resource, by the local AWS's evaluation",
            f"{n['rows']} rows",
            f"{n['allowed']} allowed and {n['denied']} denied, as the table says",
        )


def inputs(found: Figures) -> Iterator[Row]:
    m = found["measured"]
    bad = ("tests/checks/test_bad_environments.py::test_refused", "tests/settings/test_shape.py::test_refused",
           "tests/settings/test_load.py::test_invalid_environment_files", "tests/settings/test_subnets.py::test_subnets_that_do_not_fit_are_refused")  # fmt: skip
    yield Row(
        "invalid environments", f"{sum(_cases(found, t) for t in bad)}", "refused, with location, value, reason and fix"
    )
    drawn = ("tests/settings/test_load.py::test_any_data_is_an_environment_or_an_error",
             "tests/settings/test_load.py::test_any_bytes_are_an_environment_or_an_error",
             "tests/checks/test_rules.py::test_rules_never_raise")  # fmt: skip
    yield Row(
        "environments of random data, of random bytes, and mixed from two",
        f"{sum(_drawn(found, t) for t in drawn)} at random",
        "an environment, or one line for each mistake",
    )
    files = [f"tests/jobs/{part}test_bad_submissions.py::" for part in ("", "kubernetes/")]
    yield Row(
        "submissions that cannot work, Slurm and Kubernetes",
        f"{sum(_cases(found, f) for f in files)}",
        "refused before anything is sent",
    )
    asking = [f"tests/cli/test_credentials.py::test_{kind}" for kind in ("expired_credentials", "no_credentials")]
    yield Row(
        "commands with credentials that have expired, or with none",
        f"{sum(_cases(found, t) for t in asking)}",
        "one line: what is wrong, and what to do",
    )
    ways = {"`sbatch` and `srun`": ("sbatch", "sbatch-random"), "SSM": ("ssm",), "a pod": ("kubernetes",)}
    for label, kinds in ways.items():
        runs = [m[f"arguments-{kind}"] for kind in kinds]
        yield Row(
            f"arguments and variables of any characters, through {label}",
            f"{sum(n['values'] for n in runs):,} values",
            f"{sum(n['changed'] for n in runs)} changed",
        )
    names = _drawn(found, "tests/trust/test_arguments.py::test_names_and_paths_are_refused_or_safe")
    yield Row(
        "names, tokens, queues, paths of any characters",
        f"{names} sets at random",
        "plain, quoted or refused; no line of a script",
    )
    lines = _drawn(found, "tests/trust/test_arguments.py::test_no_command_line_ends_in_a_traceback")
    yield Row("command lines", f"{lines} at random", "exit code 0, 1 or 2, no traceback")
    tests = [f"tests/test_outputs.py::test_any_{what}_a_cluster_or_an_error" for what in ("outputs_are", "file_is")]
    yield Row(
        "outputs of stacks, and files of clusters",
        f"{sum(_drawn(found, t) for t in tests)} at random",
        "a cluster, or one line",
    )
    answers = ("tests/jobs/test_snapshot.py::", "tests/jobs/test_metrics.py::")
    yield Row(
        "responses of the head node, lines of logs",
        f"{sum(_drawn(found, t) for t in answers)} at random",
        "parsed, or requested again",
    )


def _jobs(there: int, n: dict[str, int]) -> str:
    return f"{there:,} jobs, {n['lost']} lost, {n['duplicated']} duplicated"


def _cases(found: Figures, test: str) -> int:
    """Cases of a test, or of all tests of a file (`tests/x.py::`)."""
    return sum(n["cases"] for n in _of(found, test))


def _drawn(found: Figures, test: str) -> int:
    return sum(n.get("drawn", 0) for n in _of(found, test))


def _of(found: Figures, test: str) -> Iterable[dict[str, int]]:
    cases: dict[str, dict[str, int]] = found["cases"]
    numbers = [n for name, n in cases.items() if name == test or (test.endswith("::") and name.startswith(test))]
    if not numbers:
        raise Failed(f"{test} is not among what was run")
    return numbers


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
