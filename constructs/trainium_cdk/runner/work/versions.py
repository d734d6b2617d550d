"""The compatibility of a node's Neuron driver and runtime, by the rules that came with the job. With others, programs fail late without a reason."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..spec import Rule

PACKAGE = "aws-neuronx-runtime-lib"
_VERSION = re.compile(r"[0-9][0-9.]{0,40}")
_ASK = (("dpkg-query", "-W", "-f", "${Version}\\n", PACKAGE), ("rpm", "-q", "--qf", "%{VERSION}\\n", PACKAGE))


def find_driver() -> str:
    """The version of the driver that is loaded; `modinfo` may find another one. Empty if none is."""
    try:
        said = Path(os.environ.get("TRN_SYS_ROOT", "") + "/sys/module/neuron/version").read_text(errors="replace")
    except OSError:
        return ""
    return _version(said)


def find_runtime(own: Mapping[str, str]) -> str:
    """The version of the runtime that is installed; empty if it is not known. `own`: the job's variables."""
    env = {**os.environ, **own}
    for words in _ASK:
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", env=env, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return _version(done.stdout)
    return ""


def find_problem(rules: Sequence[Rule], driver: str, runtime: str) -> str:
    """Describe why driver and runtime do not work together, and what to do; empty if they do, or nothing is known of the runtime.

    >>> rule = Rule(("2.29", ""), ("", "2.33"), "use another image")
    >>> find_problem([rule], "2.29.0.0", "2.30.51.0")
    'driver 2.29.0.0 and runtime 2.30.51.0 are not compatible: use another image'
    >>> find_problem([rule], "2.28.9", "2.30.51.0"), find_problem([rule], "2.29", "2.33"), find_problem([rule], "2.29", "")
    ('', '', '')
    """
    if not driver:
        return "the Neuron driver is not loaded (there is no /sys/module/neuron/version). See dmesg on the node"
    if not runtime:
        return ""
    for rule in rules:
        if _is_within(driver, rule.driver) and _is_within(runtime, rule.runtime):
            return f"driver {driver} and runtime {runtime} are not compatible: {rule.words}"
    return ""


def _version(text: str) -> str:
    return next((found[0] for line in text.splitlines() if (found := _VERSION.match(line))), "")


def _is_within(version: str, bounds: Sequence[str]) -> bool:
    first, before = bounds
    return (not first or _numbers(version) >= _numbers(first)) and (not before or _numbers(version) < _numbers(before))


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
