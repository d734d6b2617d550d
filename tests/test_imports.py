"""Which module imports which: nothing runs in a circle or upwards, in the order of FLOORS."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "constructs"
PACKAGE = "trainium_cdk"
Graph = dict[str, set[str]]

DOORS = ("cdk", "client", "description", "runner")
"""The folders at the package's top: constructs; the command and jobs; what an environment is; the program on a cluster."""
FLOORS = [
    ["trainium_cdk", "app", "jobs"],  # what other apps and programs import
    ["stacks"],  # a page for each stack, in the folder `stacks/`, to which a link in the package leads
    ["cdk.facade"],  # one construct for all that jobs need on a cluster of yours
    ["cdk.stack_outputs", "cdk.observability", "cdk.hardening"],
    ["cdk.pcluster", "cdk.pcs", "cdk.eks"],
    ["cdk.slurm"],  # what both clusters of Slurm have in common
    ["cdk.bootstrap", "cdk.storage"],
    ["cdk.network", "cdk.registry", "cdk.efa", "cdk.bucket"],
    ["cdk.helpers", "cdk.deployment"],  # code of several constructs; code of their Lambda functions
    ["client.cli"],  # the command trn
    ["client.operations"],  # scale, updates, teardown of a deployed stack
    ["client.jobs"],  # kinds, and a backend for each engine
    ["client.drawing"],  # charts, pictures and pages from plain data
    ["description.checks"],  # rules over an environment and, in live/, over an account
    ["description.cluster_configuration"],  # the YAML that ParallelCluster reads
    ["description.node"],  # what travels to nodes
    ["description.outputs"],  # the contract between stacks and jobs
    ["description.settings"],  # the environment, and the inventory of each cluster
    ["description.catalog"],  # what Trainium is
    ["description.engines"],  # their names; the environment that `trn use` remembers
    ["description.requirements"],  # what pip installs, but for what the runner never replaces
    [
        "runner",
        "cdk.eks.scaler",
    ],  # the programs on a cluster and in Lambda: their client imports what they have in common
    ["_aws"],  # sessions and errors of boto3
    ["errors"],
    ["_lazy", "problems", "text"],  # imports that wait; a mistake in an environment, and where it is; texts with a form
    ["cdk", "client", "description"],  # their own files: a line of text
]
"""The rooms, from the top to the bottom. Each imports from lower floors only; those of one floor know nothing of each other."""


@cache
def graph(folder: Path = SOURCES / PACKAGE) -> Graph:
    """Every module of a folder -> its modules that it imports, wherever in the file: also in functions, and for type checkers only."""
    linked = (folder / "stacks").glob("*.py")  # a link, which rglob does not follow
    files = {name_of(file, folder.parent): file for file in sorted({*folder.rglob("*.py"), *linked})}
    return {name: set(imports(name, file, files.keys())) - {name} for name, file in files.items()}


def name_of(file: Path, above: Path) -> str:
    return ".".join(file.relative_to(above).with_suffix("").parts).removesuffix(".__init__")


def imports(name: str, file: Path, known: Collection[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # relative: code that also runs outside the package, in a Lambda function
            folder = (name if file.name == "__init__.py" else name.rpartition(".")[0]).split(".")
            above = folder[: len(folder) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            named = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for full in named:
            # `from package import name`: the module of that name, else the package that defines the name
            found = full if full in known else full.rpartition(".")[0]
            if found in known:
                yield found


def room(module: str) -> str:
    """The first name below the package, and the next one behind a door; the package itself for its own file; a folder that travels by itself."""
    names = module.removeprefix(f"{PACKAGE}.").split(".")
    if names[:3] == ["cdk", "eks", "scaler"]:
        return "cdk.eks.scaler"
    return ".".join(names[:2] if names[0] in DOORS and names[0] != "runner" else names[:1])


@pytest.mark.parametrize("folder", [SOURCES / PACKAGE, ROOT / "sandbox"], ids=lambda folder: folder.name)
def test_no_circle(folder: Path) -> None:
    found = graph(folder)
    assert len(found) > 50
    try:
        TopologicalSorter({name: sorted(imported) for name, imported in found.items()}).prepare()
    except CycleError as e:
        pytest.fail(" imports ".join(reversed(e.args[1])))


def test_every_import_runs_downwards() -> None:
    """To a lower floor; rooms of one floor know nothing of each other."""
    height = {name: number for number, floor in enumerate(reversed(FLOORS)) for name in floor}
    assert height.keys() == {room(module) for module in graph()}, "FLOORS has other rooms"
    upwards = sorted(
        f"{module} imports {other}"
        for module, imported in graph().items()
        for other in imported
        if room(module) != room(other) and height[room(module)] <= height[room(other)]
    )
    assert upwards == []


def test_a_small_module_of_the_client_has_several_importers() -> None:
    """With fewer than 60 lines, and one module that imports it, it is a part of that one."""
    importers: dict[str, set[str]] = {}
    for module, imported in graph().items():
        for other in imported:
            importers.setdefault(other, set()).add(module)
    files = {name_of(file, SOURCES): file for file in (SOURCES / PACKAGE / "client").rglob("*.py")}
    assert len(files) > 50
    lines = {name: len(file.read_text("utf-8").splitlines()) for name, file in files.items()}
    alone = {name for name, file in files.items() if file.name != "__init__.py" and len(importers.get(name, ())) == 1}
    assert {name: lines[name] for name in alone if lines[name] < 60} == {}
