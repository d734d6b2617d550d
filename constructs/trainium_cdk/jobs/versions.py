"""Whether a job's Neuron runtime is compatible with the driver of its nodes, by the catalogue's rule, before submission and on each
node; and what AWS publishes about the versions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import quote
from trainium_cdk.runner.spec import Rule

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog, Stack
    from trainium_cdk.catalog.models import Range
    from trainium_cdk.catalog.stack import FrameworkChoice
    from trainium_cdk.outputs import Cluster, Fleet

_FRAMEWORKS: dict[str, FrameworkChoice] = {"torch-xla": "torch-xla", "torch-native": "torch-native"}
_DEPLOYED = "deployed"


def notes(image: str | None, cluster: Cluster, fleet: Fleet) -> list[str]:
    """Notes for the user on the versions that a job would run with; may be empty.

    An image, a release or a driver that the catalogue does not have is not checked.

    Args:
        image: the container image that the job names, if any.

    Raises:
        JobError: the runtime in the image is not compatible with the nodes' driver.
    """
    from trainium_cdk.catalog import Catalog, evaluate

    known = Catalog.load()
    release = known.releases.get(cluster.neuron_release)
    if release is None:
        return []
    used = (image or cluster.image) if cluster.containers else None
    runtime = known.runtime_of(used) if used else release.runtime
    if runtime and cluster.neuron_driver:
        verdict = evaluate(known, _stack(cluster, fleet, "none", runtime))
        if verdict.part == "ami" and not verdict:
            raise JobError(
                f"{f'image is {used}' if used else f'Neuron is {release.version}'}, but {verdict.reason}. Use an image with another runtime, or deploy "
                f"{cluster.stack} with another `eks: {{ami_release: ...}}`"
            )
    if image or cluster.framework not in _FRAMEWORKS:
        return []  # the image has its own framework
    verdict = evaluate(known, _stack(cluster, fleet, _FRAMEWORKS[cluster.framework], runtime or release.runtime))
    if verdict.statement is None:
        return []
    what = "AWS does not support this" if verdict.level == "unsupported" else "AWS advises against this"
    return [f"Neuron {cluster.neuron_release} with {cluster.framework}: {what}: {verdict.statement}"]


def _stack(cluster: Cluster, fleet: Fleet, framework: FrameworkChoice, runtime: str) -> Stack:
    from trainium_cdk.catalog.stack import NODE_SYSTEM, Stack

    return Stack(
        cluster.engine,
        (fleet.family,),
        cluster.neuron_release,
        framework,
        cluster.os or NODE_SYSTEM,
        cluster.neuron_driver or None,
        runtime,
        ami=_DEPLOYED,
    )


_NODE_CHECK = r"""# An incompatible driver and runtime fail late, without a clear error message.
version() {{ sed -n 's/^\([0-9][0-9.]*\).*/\1/p' 2> /dev/null || true; }}
# of the loaded driver; modinfo may find another one
driver_version() {{ cat "${{TRN_SYS_ROOT:-}}/sys/module/neuron/version" 2> /dev/null | version; }}
runtime_version() {{
  {{ dpkg-query -W -f '${{Version}}\n' {package} || rpm -q --qf '%{{VERSION}}\n' {package}; }} 2> /dev/null | version
}}
before() {{ [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }}
# within VERSION FIRST BEFORE: an empty bound is open
within() {{ {{ [ -z "$2" ] || ! before "$1" "$2"; }} && {{ [ -z "$3" ] || before "$1" "$3"; }}; }}
# Prints why the versions of this node are not compatible; nothing if they are, or are unknown.
versions_problem() {{
  local driver runtime
  driver=$(driver_version || true) runtime=$(runtime_version || true)
  if [ -z "$driver" ]; then
    printf '%s\n' 'the Neuron driver is not loaded (there is no /sys/module/neuron/version). See dmesg on the node'
    return
  fi
  if [ -z "$runtime" ]; then return; fi
{rules}
}}
check_versions() {{
  local problem
  problem=$(versions_problem)
  if [ -n "$problem" ]; then {refuse} "$problem"; else say "Neuron driver $(driver_version), runtime $(runtime_version)"; fi
}}
"""
_RULE = r"""  if within "$driver" {driver} && within "$runtime" {runtime}; then
    printf '%s\n' "driver $driver and runtime $runtime are not compatible: "{words}
    return
  fi"""


def node_check(cluster: Cluster, required: bool, catalog: Catalog | None = None) -> str:
    """Shell functions of a node's script: `check_versions` ends it if driver and runtime are not compatible.

    Args:
        required: whether the job needs a driver. If not, problems are only reported.
    """
    from trainium_cdk.catalog import Catalog

    rules = [
        _RULE.format(
            driver=_bounds(rule.driver),
            runtime=_bounds(rule.runtime),
            words=quote.word(f"{rule}. {cluster.version_fix}"),
        )
        for rule in (catalog or Catalog.load()).incompatible
    ]
    return _NODE_CHECK.format(
        rules="\n".join(rules), package="aws-neuronx-runtime-lib", refuse="die" if required else "say"
    )


def rules(cluster: Cluster, catalog: Catalog | None = None) -> tuple[Rule, ...]:
    """Drivers and runtimes that do not work together, as a node compares its own with them."""
    from trainium_cdk.catalog import Catalog

    return tuple(
        Rule(_range(rule.driver), _range(rule.runtime), f"{rule}. {cluster.version_fix}")
        for rule in (catalog or Catalog.load()).incompatible
    )


def _range(versions: Range) -> tuple[str, str]:
    return versions.first or "", versions.before or ""


def _bounds(versions: Range) -> str:
    return f"{quote.word(versions.first or '')} {quote.word(versions.before or '')}"
