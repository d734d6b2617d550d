"""Write the generated tables of the catalogue from local copies of the vendors' files.

    python -m tools.catalogue --manifest n2-manifest.json --changelog CHANGELOG.md --slurm CLONE --charts FOLDER
`n2-manifest.json` is in aws-neuron/aws-neuron-sdk (src/helperscripts), `CHANGELOG.md` in awslabs/amazon-eks-ami. CLONE is a git clone of
SchedMD/slurm with its release branches. FOLDER has what `helm show values` prints of each chart, as NAME-VERSION.yaml with the name in
`data/eks.yaml`, and what `aws eks describe-addon-configuration` prints of an add-on, as NAME-VERSION.json. One of the options is enough.
The tables are `data/releases.yaml`, `data/amis.yaml`, `data/slurm.yaml` and `data/charts.yaml` of the package. Review their difference, then add what the manifest does not contain (dates, images, operating
systems) to `data/neuron.yaml`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainium_cdk.description.catalog.models import numbers

OLDEST_RELEASE = (2, 28, 1)
"""The first release in the table: the last one before AWS ended its support of training with PyTorch/XLA."""
OLDEST_MINOR = (1, 33)
OLDEST_IMAGE = "20260318"
"""The oldest node image in the table: the first with the driver of release 2.28.1."""
FAMILIES = {"trn1": ("trn1", "trn1n"), "trn2": ("trn2", "trn2u"), "trn3": ("trn3",)}
"""Generation in the manifest -> families of instance types."""
SYSTEM = {
    "dkms": "aws-neuronx-dkms",
    "collectives": "aws-neuronx-collectives",
    "runtime": "aws-neuronx-runtime-lib",
    "tools": "aws-neuronx-tools",
    "compiler": "neuronx-cc",
}
LIBRARIES = ("nki", "neuronx_distributed", "neuronx_distributed_training")
FRAMEWORK = "torch-neuronx"
LAST_XLA = (2, 9)
"""PyTorch 2.9 is the last that torch-neuronx runs on PyTorch/XLA; later ones are TorchNeuron under the same package name."""
JAX = {(2, 32): "0.10.0", (2, 30): "0.9.0", (0,): ""}
"""First release -> the JAX of AWS's training image (aws-neuron/deep-learning-containers, 2026-08-17). Before, pip takes what jax-neuronx allows."""
SLURM = ("22.05", "24.11", "25.05", "25.11", "26.05")
"""The Slurm releases in the table: those that ParallelCluster and PCS deploy, and 22.05, which is Debian's, in the sandbox."""
_LINES = {
    "SlurmConf": "slurm_conf",
    "NodeName": "_nodename",
    "PartitionName": "_partition",
    "NodeSet": "_nodeset",
    "DownNodes": "_downnodes",
}
"""A line of slurm.conf -> the beginning of the name of its parameters' table in src/common/read_config.c."""
_TYPES = {"UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "BOOLEAN": "boolean", "FLOAT": "float"}
_PARAMETER = re.compile(r'\{\s*(?:\.key\s*=\s*)?"(?P<name>\w+)"\s*,\s*(?:\.type\s*=\s*)?S_P_(?P<type>\w+)')
CHART_DEPTH = 4
"""Chart values are kept to this depth; what is below is an object or a value."""
_KINDS = {dict: "object", list: "array", bool: "boolean", int: "integer", float: "number", str: "string"}
_VERSIONED = re.compile(r"(?P<name>[a-z-]+?)-(?P<version>v?\d.*)")
_IMAGE = re.compile(r"amazon-eks-node-al2023-x86_64-neuron-(?P<minor>1\.\d+)-v\d+")
_RELEASE = re.compile(r"1\.\d+\.\d+-(?P<date>\d{8})")


def releases(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The Neuron SDK releases of the vendor's manifest in the shape of `NeuronRelease`, oldest first."""
    packages = {r["neuron_version"]: r["packages"] for r in manifest["neuron_releases"]}
    known = sorted(version for version in packages if numbers(version) >= OLDEST_RELEASE)
    return {version: release(packages[version], version) for version in sorted(known, key=numbers)}


def release(packages: Sequence[Mapping[str, Any]], version: str) -> dict[str, Any]:
    """One release of the manifest: its packages for Trainium, and the instance families that support each."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for package in packages:
        if set(package["supported_instances"]) & set(FAMILIES):
            by_name.setdefault(package["name"], []).append(package)
    facts: dict[str, Any] = {key: by_name[name][0]["version"] for key, name in SYSTEM.items()}
    facts["families"] = _families(by_name[SYSTEM["dkms"]][0])
    facts["libraries"] = {
        name: max((p["version"] for p in by_name[name]), key=numbers) for name in LIBRARIES if name in by_name
    }
    facts["frameworks"] = {}
    for package in sorted(by_name.get(FRAMEWORK, []), key=lambda p: numbers(p["version"])):
        kind = "torch-xla" if numbers(package["version"])[:2] <= LAST_XLA else "torch-native"
        facts["frameworks"][kind] = {
            "package": FRAMEWORK,
            "version": package["version"],
            "families": _families(package),
            "pythons": list(package["supported_python_versions"]),
        }
    for package in by_name.get("jax_neuronx", []):
        # jax-neuronx asks for any newer plug-in, which may not fit the runtime; where two are listed, its release notes ask for 3.*
        plugin = max((p["version"] for p in by_name["libneuronxla"]), key=numbers)
        jax = next(jax for first, jax in JAX.items() if numbers(version) >= first)
        facts["frameworks"]["jax"] = {
            "package": "jax-neuronx",
            "version": package["version"],
            "requires": [f"libneuronxla=={plugin}", *([f"jax=={jax}"] if jax else [])],
            "families": _families(package),
            "pythons": list(package["supported_python_versions"]),
        }
    return facts


def images(changelog: str) -> dict[str, dict[str, dict[str, str]]]:
    """The Neuron node images of EKS's change log, newest first: release date -> Kubernetes version -> driver, EFA and
    kernel."""
    by_date: dict[str, dict[str, dict[str, str]]] = {}
    for section in changelog.split("<summary><b>Kubernetes ")[1:]:
        image, version = _IMAGE.search(section), _RELEASE.search(section)
        if not image or not version or numbers(image["minor"]) < OLDEST_MINOR or version["date"] < OLDEST_IMAGE:
            continue
        packages = _column(section.partition("<th>Package</th>")[2], "AL2023_x86_64_NEURON")
        by_date.setdefault(version["date"], {})[image["minor"]] = facts = {
            "version": version[0],
            "driver": packages["aws-neuronx-dkms"].removesuffix("-dkms"),
            "efa": packages["efa"].partition("-")[0],
        }
        for name, kernel in packages.items():
            if re.fullmatch(r"kernel[\d.]*", name):  # some sections list no kernel
                facts["kernel"] = ".".join(kernel.split(".")[:2])
    return dict(sorted(by_date.items(), reverse=True))


def slurm_lines(sources: Mapping[str, str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Line of slurm.conf -> parameter -> its type, and the releases that have it where not all do.

    Args:
        sources: src/common/read_config.c of each release, oldest first.
    """
    lines: dict[str, dict[str, dict[str, Any]]] = {}
    for line, table in _LINES.items():
        found: dict[str, dict[str, Any]] = {}
        for version, text in sources.items():
            body = re.search(rf"\b{table}_options\[\] = \{{(.*?)\n\s*\}};", text, re.DOTALL)
            if body is None:
                raise ValueError(f"read_config.c of Slurm {version} has no {table}_options")
            for name, kind in _PARAMETER.findall(body[1]):
                entry = found.setdefault(name, {"in": []})
                entry["type"] = _TYPES.get(kind, "text")
                entry["in"].append(version)
        lines[line] = {
            name: {"type": e["type"], **({} if len(e["in"]) == len(sources) else {"in": e["in"]})}
            for name, e in sorted(found.items(), key=lambda item: item[0].lower())
        }
    return lines


def chart_keys(values: Mapping[str, Any], depth: int = CHART_DEPTH) -> dict[str, Any]:
    """Key -> kind of its default, or the keys below it. `any` where the default is null, `object` where any key may be below."""
    return {
        key: chart_keys(value, depth - 1)
        if depth > 1 and isinstance(value, dict) and value
        else _KINDS.get(type(value), "any")
        for key, value in sorted(values.items())
    }


def addon_keys(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The same of an add-on's JSON schema. Texts of a format are named by it, for example `string of boolean`."""
    schema = json.loads(answer["configurationSchema"])

    def keys(part: Mapping[str, Any]) -> Any:
        if "$ref" in part:
            return keys(schema["definitions"][part["$ref"].rpartition("/")[2]])
        if part.get("properties"):
            return {key: keys(inner) for key, inner in sorted(part["properties"].items())}
        kind = part["type"] if isinstance(part["type"], str) else part["type"][0]
        return f"{kind} of {part['format']}" if "format" in part else kind

    found: dict[str, Any] = keys(schema)
    return found


def _families(package: Mapping[str, Any]) -> list[str]:
    return [f for g, families in FAMILIES.items() if g in package["supported_instances"] for f in families]


def _column(table: str, name: str) -> dict[str, str]:
    """Package -> version in one column of an HTML table whose cells may span several columns."""
    head, *rows = table.split("<tr>")
    at = re.findall(r"<th>(.*?)</th>", head).index(name)
    column = {}
    for row in rows:
        cells = [text for span, text in _cells(row) for _ in range(span)]
        if len(cells) > at + 1:
            column[cells[0]] = cells[at + 1]
    return column


def _cells(row: str) -> Iterator[tuple[int, str]]:
    for span, text in re.findall(r"<td(?: colspan=\"(\d+)\")?>(.*?)</td>", row):
        yield int(span or 1), text.strip()


def _yaml(data: Any, indent: int, depth: int) -> str:
    """YAML in which every string is quoted, so that no version is read as a number."""
    return "".join(
        f"{' ' * indent}{json.dumps(key)}:\n{_yaml(value, indent + 2, depth - 1)}"
        if depth and isinstance(value, dict) and value
        else f"{' ' * indent}{json.dumps(key)}: {json.dumps(value)}\n"
        for key, value in data.items()
    )


def table(name: str, data: Mapping[str, Any], *, source: str, date: str, depth: int) -> str:
    """The text of a generated data file. Below `depth` levels, each entry is on one line."""
    head = "# Written by `python -m tools.catalogue`: do not edit. That module names the source files.\n"
    return f"{head}source: {json.dumps(source)}\ndate: {date}\n{name}:\n{_yaml(data, 2, depth)}"


def manifest_table(manifest: Mapping[str, Any]) -> str:
    """`data/releases.yaml`."""
    month, day, year = manifest["manifest_date"].split("/")
    source = f"aws-neuron/aws-neuron-sdk, src/helperscripts/n2-manifest.json {manifest['manifest_version']}"
    return table("releases", releases(manifest), source=source, date=f"{year}-{month}-{day}", depth=2)


def changelog_table(changelog: str) -> str:
    """`data/amis.yaml`."""
    by_date = images(changelog)
    newest = next(iter(by_date))
    date = f"{newest[:4]}-{newest[4:6]}-{newest[6:]}"
    return table("amis", by_date, source="awslabs/amazon-eks-ami, CHANGELOG.md", date=date, depth=1)


def slurm_table(clone: Path) -> str:
    """`data/slurm.yaml`."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(clone), *words], check=True, capture_output=True, text=True).stdout

    sources = {version: git("show", f"slurm-{version}:src/common/read_config.c") for version in SLURM}
    date = max(git("log", "-1", "--format=%cs", f"slurm-{version}").strip() for version in SLURM)
    head = table("lines", slurm_lines(sources), source="SchedMD/slurm, src/common/read_config.c", date=date, depth=1)
    return head.replace("\nlines:", f"\nreleases: {json.dumps(SLURM)}\nlines:", 1)


def charts_table(folder: Path) -> str:
    """`data/charts.yaml`; it has the newest file's date."""
    import yaml

    found: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.iterdir()):
        name = _VERSIONED.fullmatch(file.stem)
        if name is None:
            raise ValueError(f"{file.name} is not named NAME-VERSION.yaml or NAME-VERSION.json")
        content = yaml.safe_load(file.read_text("utf-8"))  # JSON is YAML
        keys = addon_keys(content) if file.suffix == ".json" else chart_keys(content)
        found[name["name"]] = {"version": name["version"], "keys": keys}
    date = max(dt.date.fromtimestamp(file.stat().st_mtime) for file in folder.iterdir())
    source = "each chart's own values.yaml, each add-on's configuration schema, at the version that is named here"
    return table("charts", found, source=source, date=date.isoformat(), depth=3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the files named on the command line, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m tools.catalogue", description=__doc__.split("\n")[0])
    parser.add_argument("--manifest", type=Path, help="n2-manifest.json of aws-neuron/aws-neuron-sdk")
    parser.add_argument("--changelog", type=Path, help="CHANGELOG.md of awslabs/amazon-eks-ami")
    parser.add_argument("--slurm", type=Path, metavar="CLONE", help="git clone of SchedMD/slurm")
    parser.add_argument("--charts", type=Path, metavar="FOLDER", help="values of charts, NAME-VERSION.yaml")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).parents[1] / "constructs/trainium_cdk/description/catalog/data",
        help="folder to write to",
    )
    given = parser.parse_args(arguments)
    if not (given.manifest or given.changelog or given.slurm or given.charts):
        parser.error("give --manifest, --changelog, --slurm, --charts or several of them")
    try:
        if given.manifest:
            text = manifest_table(json.loads(given.manifest.read_text("utf-8")))
            (given.data / "releases.yaml").write_text(text, "utf-8")
        if given.changelog:
            (given.data / "amis.yaml").write_text(changelog_table(given.changelog.read_text("utf-8")), "utf-8")
        if given.slurm:
            (given.data / "slurm.yaml").write_text(slurm_table(given.slurm), "utf-8")
        if given.charts:
            (given.data / "charts.yaml").write_text(charts_table(given.charts), "utf-8")
    except (OSError, KeyError, ValueError, StopIteration, subprocess.CalledProcessError) as e:
        sys.exit(f"refresh: a source file cannot be read or has an unexpected form: {type(e).__name__}: {e}")


if __name__ == "__main__":
    main()
