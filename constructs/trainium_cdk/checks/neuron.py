"""The Neuron release, the framework, and whether both run on the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from trainium_cdk.catalog import Framework, NeuronRelease, UnknownFact
from trainium_cdk.checks.rule import Rule, error, halves, info, listed, twice, warning
from trainium_cdk.settings import Environment, Problem

_AT = ("bootstrap", "framework")


def release_is_known(env: Environment) -> Iterator[Problem]:
    try:
        env.catalog.release(env.bootstrap.neuron_release)
    except UnknownFact as e:
        yield error(("bootstrap", "neuron_release"), env.bootstrap.neuron_release, e.reason, e.fix)


def framework_trains_on_every_type(env: Environment) -> Iterator[Problem]:
    release, asked = _release(env), env.bootstrap.framework
    if release is None or asked == "none":
        return
    framework = release.frameworks.get(asked)
    for half in halves(env):
        families = {f.kind.family for f in half.fleets}
        if framework is None:
            reason = f"Neuron {release.version} ships no {asked} for training"
            yield error(_AT, asked, reason, _instead(env, asked, families), half.engine)
        elif missing := sorted(families - set(framework.families)):
            yield error(
                _AT,
                asked,
                f"{asked} of Neuron {release.version} does not train on {listed(missing)}, only on {listed(framework.families)}",
                _instead(env, asked, families),
                half.engine,
            )


def framework_is_finished(env: Environment) -> Iterator[Problem]:
    framework = _framework(env)
    if framework and framework.beta:
        yield info(
            _AT,
            env.bootstrap.framework,
            f"{framework.package} {framework.version} is a beta",
            "write framework: torch-xla with a release that ships it, for a finished one",
        )


def framework_runs_on_the_system(env: Environment) -> Iterator[Problem]:
    systems = env.catalog.parallelcluster.operating_systems
    system = systems.get(env.pcluster.os)
    if _framework(env) and system and not system.framework_wheels:
        able = [name for name, s in systems.items() if s.framework_wheels]
        yield error(
            ("pcluster", "os"),
            env.pcluster.os,
            f"the {env.bootstrap.framework} wheels need a newer C library than {env.pcluster.os} has",
            f"write os: {listed(able, 'or')}, or bootstrap.framework: none and train in containers",
        )


def packages_have_a_place(env: Environment) -> Iterator[Problem]:
    packages = env.bootstrap.pip_packages
    if packages and env.bootstrap.framework == "none":
        yield error(
            ("bootstrap", "pip_packages"),
            listed(packages),
            "with framework: none there is no virtual environment to install them into",
            "choose a framework, or remove pip_packages",
            "slurm",
        )
    names = [re.split(r"[\[=<>!~]", p)[0].lower().replace("_", "-").replace(".", "-") for p in packages]
    for i in twice(names):
        yield error(
            ("bootstrap", "pip_packages", i),
            packages[i],
            f"{names[i]} is there already: pip refuses it",
            "keep one",
            "slurm",
        )
    framework = _framework(env)
    if framework and framework.package in names:
        yield warning(
            ("bootstrap", "pip_packages", names.index(framework.package)),
            framework.package,
            f"Neuron {env.release.version} pins {framework.package} {framework.version}",
            "remove it here, and choose the version with bootstrap.neuron_release",
            "slurm",
        )


def venv_is_shared(env: Environment) -> Iterator[Problem]:
    venv, key = env.bootstrap.venv, ("bootstrap", "venv")
    path = PurePosixPath(venv)
    if ".." in path.parts:
        yield error(key, venv, "the path leads upwards (..)", "write the path it ends at", "slurm")
    elif (
        env.bootstrap.framework != "none"
        and path.is_absolute()
        and not any(path.is_relative_to(d) for d in (*env.storage.mount_dirs, "/home"))
    ):
        yield warning(
            key,
            venv,
            f"it is not on shared storage ({listed(env.storage.mount_dirs)}, /home): each node has to make its own",
            f"write {env.storage.shared_dir}/{path.name}, or a name without a path",
            "slurm",
        )


def _release(env: Environment) -> NeuronRelease | None:
    return env.catalog.releases.get(env.bootstrap.neuron_release or env.catalog.default_release)


def _framework(env: Environment) -> Framework | None:
    release, asked = _release(env), env.bootstrap.framework
    return release.frameworks.get(asked) if release and asked != "none" else None


def _instead(env: Environment, asked: str, families: set[str]) -> str:
    """The releases, and the other frameworks, that train on all the families."""
    found: dict[str, list[str]] = {}
    for release in env.catalog.releases.values():
        for name, framework in release.frameworks.items():
            if families <= set(framework.families):
                found.setdefault(name, []).append(release.version)
    where = sorted(found.items(), key=lambda item: item[0] != asked)
    choices = [f"framework: {name} with neuron_release: {listed(versions, 'or')}" for name, versions in where]
    if choices:
        return f"write {'; or '.join(choices)}"
    return f"put {listed(sorted(families))} into environments of their own: no one release trains on all of them"


RULES: tuple[Rule, ...] = (
    release_is_known,
    framework_trains_on_every_type,
    framework_is_finished,
    framework_runs_on_the_system,
    packages_have_a_place,
    venv_is_shared,
)
