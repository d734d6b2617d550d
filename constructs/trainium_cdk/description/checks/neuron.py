"""The Neuron release, the framework, and whether both work on the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from trainium_cdk.description.catalog import Framework, NeuronRelease, Stack, evaluate, nearest
from trainium_cdk.description.catalog.constants import JAX
from trainium_cdk.description.catalog.stack import alternatives
from trainium_cdk.description.checks.rule import Rules, error, info, inventories, join_words, warning
from trainium_cdk.description.requirements import entry
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.inventory import Inventory
from trainium_cdk.errors import UnknownCatalogEntry
from trainium_cdk.problems import KeyPath

_AT = ("bootstrap", "framework")


RULES = Rules()


@RULES.refuse("catalogue, neuron: versions of a release, without which nothing is installed")
def unknown_release(env: Environment) -> Iterator[Problem]:
    try:
        env.catalog.release(env.bootstrap.neuron_release)
    except UnknownCatalogEntry as e:
        yield error(("bootstrap", "neuron_release"), e.reason, e.fix)


@RULES.refuse("catalogue, neuron: the vendor's statement, which the message repeats")
def incompatible_versions(env: Environment) -> Iterator[Problem]:
    """Operating system, Neuron release, framework, driver and instance families, by the catalogue's rule."""
    for cluster in inventories(env):
        stack = _stack(env, cluster)
        if stack is None:
            continue
        verdict = evaluate(env.catalog, stack)
        if verdict.level == "works" and verdict.statement is None:
            continue
        better = _recommended(env, stack) or nearest(env.catalog, stack)
        at, value = _place(env, cluster, verdict.part)
        if verdict.level == "cannot":
            yield error(at, verdict.reason, _fix(env, cluster, stack, better), value=value, engine=cluster.engine.name)
        elif verdict.statement:
            level = warning if verdict.level == "unsupported" else info
            what = (
                "it runs, but AWS does not support it" if verdict.level == "unsupported" else "AWS advises against it"
            )
            if verdict.part == "ami":
                what = f"driver {stack.driver} with runtime {stack.runtime}: {what}"
            fix = (
                _fix(env, cluster, stack, better)
                if better and evaluate(env.catalog, better).statement is None
                else "plan the migration"
            )
            yield level(at, f"{what}: {verdict.statement}", fix, value=value, engine=cluster.engine.name)


@RULES.add
def jax_is_a_beta(env: Environment) -> Iterator[Problem]:
    if env.framework == "jax":
        yield info(_AT, JAX, "for a program in PyTorch, leave bootstrap.framework out")


@RULES.add
def pinned_package(env: Environment) -> Iterator[Problem]:
    names, framework = [entry(package)[1] for package in env.bootstrap.pip_packages], _framework(env)
    for engine in env.slurm_sections:
        if framework and framework.package in names:
            yield warning(
                ("bootstrap", "pip_packages", names.index(framework.package)),
                f"Neuron {env.release.version} pins {framework.package} {framework.version}",
                "remove it here, and choose the version with bootstrap.neuron_release",
                value=framework.package,
                engine=engine,
            )


@RULES.add
def venv_not_shared(env: Environment) -> Iterator[Problem]:
    for engine in env.slurm_sections:
        yield from _venv(env, engine)


def _venv(env: Environment, engine: str) -> Iterator[Problem]:
    venv, key = env.bootstrap.venv, ("bootstrap", "venv")
    path = PurePosixPath(venv)
    if ".." in path.parts:
        text = "the path contains .., so that it is not known whether it is on shared storage"
        yield warning(key, text, "write the path without ..", engine=engine)
    elif (
        env.framework != "none"
        and path.is_absolute()
        and not any(path.is_relative_to(d) for d in (*env.storage.mount_dirs, "/home"))
    ):
        yield warning(
            key,
            f"it is not on shared storage ({join_words(env.storage.mount_dirs)}, /home): each node would need its own",
            f"write {env.storage.shared_dir}/{path.name}, or a name without a path",
            engine=engine,
        )


def _release(env: Environment) -> NeuronRelease | None:
    version = env.bootstrap.neuron_release
    return env.release if version is None else env.catalog.releases.get(version)


def _framework(env: Environment) -> Framework | None:
    release = _release(env)
    return release.frameworks.get(env.framework) if release and env.framework != "none" else None


def _stack(env: Environment, cluster: Inventory) -> Stack | None:
    """The versions of one engine's nodes; None if one of them is not known, which other rules report."""
    release, families = _release(env), env.families[cluster.engine.name]
    if release is None or not families:
        return None
    return cluster.versions(release.version, families)


_KEYS: dict[str, KeyPath] = {
    "release": ("bootstrap", "neuron_release"),
    "framework": _AT,
    "ami": ("eks", "ami_release"),
}
"""The setting of each part of a stack but the operating system, which has one in each section."""


def _key(cluster: Inventory, part: str) -> KeyPath:
    return (cluster.engine.section, "os") if part == "system" else _KEYS[part]


def _place(env: Environment, cluster: Inventory, part: str) -> tuple[KeyPath, str]:
    """The setting to report for a part of a stack: its own, or the release if only the release is set."""
    slurm = env.slurm_sections.get(cluster.engine.name)
    values = {
        "release": env.bootstrap.neuron_release,
        "framework": env.bootstrap.framework,
        "system": slurm.os if slurm and "os" in slurm.model_fields_set else None,
        "ami": env.eks.ami_release,
    }
    effective = {
        "release": env.release.version,
        "framework": env.framework,
        "system": slurm.os if slurm else "",
        "ami": env.eks.ami_release or (env.node_image.version.rpartition("-")[2] if env.node_image else ""),
    }
    if values[part] is None and values["release"] is not None:
        part = "release"
    return _key(cluster, part), effective[part]


def _recommended(env: Environment, stack: Stack) -> Stack | None:
    """Return the stack that AWS recommends for the nodes, with the fewest changes. None if it does not work, or the file names a framework."""
    of = [env.catalog.recommended(family) for family in stack.families]
    if env.bootstrap.framework is not None:
        return None
    same = [
        other
        for other in alternatives(env.catalog, stack)
        if all(r and (r.framework, r.release) == (other.framework, other.release) for r in of)
        and evaluate(env.catalog, other).level == "works"
        and evaluate(env.catalog, other).statement is None
    ]
    return min(same, key=lambda other: (other.system != stack.system, other.ami != stack.ami), default=None)


def _fix(env: Environment, cluster: Inventory, stack: Stack, better: Stack | None) -> str:
    """Return the fix that leads to the nearest stack that works."""
    if better is None:
        if len(stack.families) > 1:
            return f"put {join_words(sorted(stack.families))} into separate environments: no release supports training on all of them"
        return f"describe a release that supports training on {join_words(stack.families)} under catalog.releases"
    new = {"release": better.release, "framework": better.framework, "system": better.system, "ami": better.ami}
    old = {"release": stack.release, "framework": stack.framework, "system": stack.system, "ami": stack.ami}
    changed = {p: f"'{v}'" if v and p == "ami" else v for p, v in new.items() if v != old[p]}
    given = {"release": env.bootstrap.neuron_release, "framework": env.bootstrap.framework, "ami": env.eks.ami_release}
    follows = {p for p in changed if given.get(p, p) is None}  # what is not set is chosen automatically
    changed = {p: v for p, v in changed.items() if p not in follows} or changed
    write = join_words(f"{'.'.join(map(str, _key(cluster, p)))}: {v}" for p, v in changed.items() if v)
    removed = "ami" in changed and not better.ami and env.eks.ami_release
    removal = f"remove eks.ami_release: nodes then have driver {better.driver}" if removed else ""
    return ", and ".join(filter(None, [f"write {write}" if write else "", removal]))
