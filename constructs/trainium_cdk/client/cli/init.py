"""`trn init`: writes an environment file to begin with, and the CDK app of it: app.py and cdk.json, in the current folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainium_cdk.client.cli import output, peers
from trainium_cdk.client.cli.named import unknown
from trainium_cdk.client.cli.output import log, write_file
from trainium_cdk.client.cli.use import remember
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.description import engines
from trainium_cdk.description.engines import SLURM, InUse
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainium_cdk.description.catalog import Catalog
    from trainium_cdk.description.engines import Engine

_REGIONS = ("us-west-2", "us-east-1", "us-east-2")
"""Regions that are suggested first."""
_NAME = "trn"
_CHEAPEST = "trn2.3xlarge"
"""Default type: the cheapest by the catalogue's prices for which AWS recommends what `finetune` needs. A test compares it with the catalogue."""
_HEAD = """# yaml-language-server: $schema=environment.schema.json
# An environment: one {title} cluster with its network and storage. Every key that is not here has its default.
# Check it: trn check --offline --environment {file}. Use it: trn use {file}
# The {{paid}}.
# Once in each region: {bootstrap}

# Lower-case letters, digits and hyphens. The stacks of another environment than `trn` have its name in theirs.
name: {name}
region: {region}
{software}"""
_STORAGE = """
storage:
  # The shared file system of all nodes: code, logs, checkpoints, packages. It costs money until the stack is deleted.
  efs: {throughput: elastic}
  # fsx: {deployment: PERSISTENT_2, capacity_gib: 2400}   # FSx for Lustre at /fsx: for large data and checkpoints

# on_destroy: keep                        # file systems and their data stay when the stack is deleted
"""

_SECTIONS: Mapping[str, str] = {
    "slurm": """
# A Slurm cluster on AWS ParallelCluster: cdk deploy TrnPclusterStack -c env={file}
pcluster:
  queues:
    - name: compute1
      # capacity_type: spot               # on-demand by default; capacity-block for a reserved block
      compute_resources:
        # Nodes start when jobs need them, and cost nothing while none runs.
        - {{name: trn, instance_type: {instance_type}, max_nodes: {nodes}}}
  # Data is prepared on ordinary nodes, which start when a job needs them; null: on a Trainium node.
  # cpu_queue: {{instance_type: c5.2xlarge, max_nodes: 2}}
""",
    "eks": """
# A Kubernetes cluster on EKS: cdk deploy TrnEksStack -c env={file}
eks:
  # How jobs get devices. claims: from Neuron's DRA driver, each with its own LNC. plugin: from Neuron's device plug-in.
  plugins: {{devices: {devices}}}
  node_groups:
    # Nodes start when jobs need them, and are ended when they have been idle for ten minutes.
    - {{name: trn, instance_type: {instance_type}, max_nodes: {nodes}}}
  # access:                               # administrators; jobs have their own role
  #   - {{principal: "arn:aws:iam::111122223333:role/Platform", policy: cluster-admin}}
""",
    "pcs": """
# A Slurm cluster on AWS PCS: cdk deploy TrnPcsStack -c env={file}
pcs:
  # Slurm's controller, which AWS runs and charges by the hour: small is for 32 nodes, the login node included. It cannot be changed later.
  size: {size}
  queues:
    - name: compute1
      # capacity_type: spot               # or on-demand, which is the default
      compute_resources:
        # Nodes cost nothing while no job needs them; min_nodes of them would always run.
        - {{name: trn, instance_type: {instance_type}, max_nodes: {nodes}}}
  # Data is prepared on ordinary nodes, which start when a job needs them.
  cpu_queue: {{max_nodes: 1}}
""",
}
"""The section of each engine. {size}: the size of a PCS controller for the nodes."""


def init(
    named: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="Name of the environment; or, with the ending .yaml or .yml, the file to write. Default: the name trn, in environment.yaml.",
        ),
    ] = "",
    engine: Annotated[
        str, typer.Option(help="slurm (ParallelCluster), pcs (AWS PCS) or eks (Kubernetes).")
    ] = SLURM.name,
    instance_type: Annotated[
        str, typer.Option(help="Type of the nodes. The default is the cheapest that runs `finetune`.")
    ] = _CHEAPEST,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            "-N",
            min=1,
            max=1000,
            help="Most nodes at once. Default: 4; 1 where the instance type has no EFA.",
        ),
    ] = None,
    framework: Annotated[
        str, typer.Option(help="jax, torch-native or torch-xla. Default: the one that AWS recommends for the type.")
    ] = "",
    region: Annotated[
        str | None,
        typer.Option(
            help="AWS region. Default: one that offers the type, at a known price if there is one, and that the scheduler's service lists. "
            f"For {_CHEAPEST}: sa-east-1 on slurm, ap-southeast-4 on pcs and eks. For others us-west-2, us-east-1 and us-east-2 come first."
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the environment, where FILE is given.")] = _NAME,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the file, and an app.py and cdk.json that `trn init` wrote.")
    ] = False,
) -> None:
    """Write a commented environment file, and the CDK app for it.

    It is valid, and can be deployed as it is: `cdk deploy` and all `trn` commands use it from then on (`trn use`). An app.py or cdk.json that
    is there already stays.
    """
    from trainium_cdk.description import settings
    from trainium_cdk.description.catalog import Catalog
    from trainium_cdk.description.catalog.constants import JAX
    from trainium_cdk.description.catalog.models import TITLES
    from trainium_cdk.description.checks.live.account import bootstrap_command

    file = Path("environment.yaml")
    if named.endswith((".yaml", ".yml")):
        file = Path(named)
    elif named:
        if name != _NAME:
            raise TrnError(f"two names are given, {named[:80]!r} and {name[:80]!r}: leave one out")
        if {"/", "."} & set(named):
            raise TrnError(
                f"{named[:80]!r} is neither a name nor a file that ends with .yaml. Write {Path(named).stem}.yaml"
            )
        name = named
        _check_name(name, "NAME")
    _may_be_written(file, force=force)
    known = Catalog.load()
    engine = peers.engine(engine)
    if engine not in engines.ENGINES:
        raise TrnError(unknown("there is no engine", engine, engines.ENGINES))
    chosen = engines.get(engine)
    if instance_type not in known.instances:
        raise TrnError(unknown("the catalogue has no instance type", instance_type, known.instances))
    if framework and framework not in TITLES:
        raise TrnError(unknown("there is no framework", framework, TITLES))
    of = [one for release in known.releases.values() for name, one in release.frameworks.items() if name == framework]
    if framework and not any(known.instances[instance_type].family in one.families for one in of):
        raise TrnError(
            f"no release of the catalogue has {TITLES[framework]} for {instance_type}. Leave --framework out"
        )
    offered = known.regions_of(instance_type)
    if region and offered and region not in offered:
        there = "".join(f"; or --instance-type {kind}" for kind in known.instances if region in known.regions_of(kind))
        raise TrnError(f"{instance_type} is not offered in {region}, by the catalogue. Use {', '.join(offered)}{there}")
    places = _places(known, chosen, instance_type)
    place = region or next(iter(places), None)
    if region and places and engine == SLURM.name and region not in known.parallelcluster.regions:
        raise TrnError(
            f"ParallelCluster {known.parallelcluster.default} does not list {region}. Use {' or '.join(places)}, or --engine pcs"
        )
    if place is None or not places:
        others = [e.name for e in engines.ENGINES.values() if _places(known, e, instance_type)]
        raise TrnError(
            f"{instance_type} is offered in {', '.join(offered)}, which ParallelCluster {known.parallelcluster.default} does not list. Use "
            f"--engine {' or '.join(others)}"
        )
    nodes = nodes or _nodes(known, instance_type)
    _check_name(name)
    title = chosen.title
    text, paid = _written(known, chosen, instance_type, place, nodes, name, str(file), framework)
    env = settings.parse(text, str(file))
    write_file(file, text, 0o644)
    log(
        f"{file}: {title} in {place}, at most {nodes} x {instance_type}, with {TITLES.get(env.framework, env.framework)} of Neuron SDK "
        f"{env.release.version}"
    )
    log(paid)
    remember(InUse(file.resolve()), place)
    if file.resolve().is_relative_to(Path.cwd()):
        for line in write_app(force=force):
            log(line)
    deploy = f"{bootstrap_command(place)}; cdk deploy {chosen.stack}"
    recommended = known.recommended(instance_type)
    if env.framework == "jax":
        log(f"{JAX}. What a job needs: trn submit train.py --launcher jax --dry-run")
        deploy = "trn launch train.py --launcher jax"
    elif recommended and framework in ("", recommended.framework):
        job = recommended.example(next(iter(recommended.kinds)))
        log(f"jobs to run there: {', '.join(recommended.kinds)}. What the first one needs: {job} --dry-run")
        deploy = job.replace("submit", "launch", 1)
    log(f"Next: trn check; {deploy}")


def _written(
    known: Catalog, engine: Engine, instance_type: str, region: str, nodes: int, name: str, file: str, framework: str
) -> tuple[str, str]:
    """The environment file, and the least to pay for a job on its cluster, with how to buy it."""
    from trainium_cdk.description import settings
    from trainium_cdk.description.checks.eks_nodes import documented
    from trainium_cdk.description.checks.live import CheckTarget
    from trainium_cdk.description.checks.live.account import bootstrap_command
    from trainium_cdk.description.checks.live.cost import cost, describe_least

    # the login node and one of the CPU queue are in it, too
    size = next(size for size, holds in known.pcs.sizes.items() if holds.nodes >= nodes + 2)
    text = (_HEAD + _SECTIONS[engine.name]).format(
        file=output.line(printed(file)),
        title=engine.title,
        name=f'"{name}"' if name in ("null", "true", "false") else name,  # which YAML reads as no text
        region=region,
        bootstrap=bootstrap_command(region),
        software=_software(known, instance_type, framework),
        instance_type=instance_type,
        nodes=nodes,
        size=size,
        devices="claims" if documented(known.instances[instance_type]) else "plugin",
    )
    least = describe_least(cost(CheckTarget(settings.parse(text), engine.name)))
    paid = f"{least}; `trn capacity` finds what is sold, and prints how to buy it"
    return text.replace("{paid}", paid) + _STORAGE, paid


def _may_be_written(file: Path, *, force: bool) -> None:
    """Raises TrnError: the file exists, and is not to be overwritten."""
    try:
        exists = file.exists()
    except OSError as e:  # the name is too long
        raise TrnError(f"cannot write {file}: {e.strerror}. Give another file") from None
    if exists and not force:
        raise TrnError(
            f"{file} exists already. Use it ({printed('trn', 'use', file)}), give another file, or --force to overwrite it"
        )


def _places(known: Catalog, engine: Engine, instance_type: str) -> list[str]:
    """The regions to suggest, the first choice first: those that offer the instance type, and that the engine's service lists; with a known
    price before others. A type whose zones are not known may be offered anywhere."""
    offered = known.regions_of(instance_type) or _REGIONS
    served = known.parallelcluster.regions if engine.name == SLURM.name else offered
    places = [r for r in dict.fromkeys((*_REGIONS, *offered)) if r in offered and r in served]
    return sorted(places, key=lambda region: known.price(instance_type, region) is None)


def _nodes(known: Catalog, instance_type: str) -> int:
    """Most nodes at once where none are given: without EFA, no job can use several."""
    return 4 if known.instances[instance_type].efa_interfaces else 1


def _software(known: Catalog, instance_type: str, given: str) -> str:
    """Comments: what the nodes get, and which kinds of jobs to run there; the framework that is given."""
    from trainium_cdk.description.catalog.constants import JAX
    from trainium_cdk.description.catalog.models import TITLES

    if given:
        about = f"# {JAX}.\n" if given == "jax" else ""
        return f"\n{about}bootstrap: {{framework: {given}}}\n"
    recommended = known.recommended(instance_type)
    if recommended is None:
        return ""
    framework = known.release(recommended.release).frameworks[recommended.framework]
    beta = ", a beta" if framework.beta else ""
    ended = known.ended(recommended.framework)
    ended = f"# {ended}.\n# AWS supports JAX there, as a beta: trn init --framework jax.\n" if ended else ""
    return f"""
# AWS recommends for {instance_type}, and the nodes get: {TITLES[recommended.framework]} {framework.version}{beta}, of Neuron SDK {recommended.release}.
{ended}# Kinds of jobs to run: {", ".join(recommended.kinds)} (`trn submit --list` describes them). The default, written out:
# bootstrap: {{framework: {recommended.framework}, neuron_release: {recommended.release}}}
"""


def _check_name(name: str, given: str = "--name") -> None:
    """Raises SettingsError: no environment can have this name. `given`: where it was."""
    from trainium_cdk.description import settings
    from trainium_cdk.problems import Source

    settings.validate({"name": name}, Source(given))


_MARK = "Written by `trn init`"
"""Stands in both files: only such a file is overwritten."""
_APP = f'''"""{_MARK}. The stacks of the environment file of `-c env=FILE`, of TRN_ENV, or of `trn use`."""

import sys

from trainium_cdk.app import run

if __name__ == "__main__":
    sys.exit(run())
'''


def write_app(*, force: bool) -> Iterator[str]:
    """Write app.py and cdk.json, each where there is none; yields what to say, also if the CDK's command line cannot be run.

    Args:
        force: also where `trn init` has written it.

    Raises:
        TrnError: the folder cannot be written to.
    """
    from trainium_cdk.client.operations.updates import spec

    texts = {"app.py": _APP, "cdk.json": json.dumps(_configuration(), indent=2) + "\n"}
    written = []
    for name, text in texts.items():
        file = Path(name)
        if file.exists() and not (force and _ours(file)):
            yield f"{name} is there already, and stays as it is"
            continue
        write_file(file, text, 0o644)
        written.append(name)
    if written:
        yield f"written too, for cdk: {' and '.join(written)}"
    if not (spec.installed() or spec.npm()):
        yield spec.NO_NODE


def _ours(file: Path) -> bool:
    try:
        return _MARK in file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _configuration() -> dict[str, Any]:
    """Return the content of cdk.json. The app runs with this Python, and with the CDK's feature flags with which the stacks are tested."""
    return {"//": f"{_MARK}.", "app": f"{printed(_python())} app.py", "context": flags()}


def flags() -> dict[str, Any]:
    """The CDK's feature flags, as in this project's own cdk.json.

    Raises:
        TrnError: the file is not in the package.
    """
    file = Path(__file__).with_name("cdk.json")
    try:
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))["context"]
    except (OSError, ValueError, KeyError) as e:
        raise TrnError(f"cannot read {file}: {e}. Install trainium-cdk again") from None
    return found


def _python() -> Path:
    """This Python; by its path in the current folder, if it is there: the folder can then be moved."""
    python = Path(sys.executable)
    return python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python
