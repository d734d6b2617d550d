"""Scanners of the repository's files and of the scripts inside the templates."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detect_secrets.core.scan import _get_lines_from_file
from detect_secrets.core.secrets_collection import SecretsCollection
from detect_secrets.settings import default_settings, get_plugins

from audit.findings import REPOSITORY, ROOT, Finding, Subjects
from audit.scanners.process import HERE, THERE, run
from audit.templates import plain, values

PYTHON = ("app.py", "audit", "benchmarks", "constructs", "sandbox", "stacks")
"""What bandit scans: everything but the tests."""
_STRICT = "--enable=quote-safe-variables,require-double-brackets,deprecate-which,avoid-nullary-conditions"
_SCRIPT_PART = re.compile(r"Content-Type: text/x-shellscript[^\n]*\n\n(.*?)(?=\n--|\Z)", re.DOTALL)
# hashes of packages, written by npm and uv
_LOCK_FILES = r"(^|/)(package-lock\.json|requirements[\w-]*\.txt)$"


# for scripts of jobs: files that exist only on the cluster, and variables that one file sets and another reads
_ACROSS_FILES = "--exclude=SC1090,SC1091,SC2034,SC2154"


def shellcheck(subjects: Subjects) -> list[Finding]:
    """Every script of the repository, of the templates (for nodes and image builds), and of jobs."""
    found = [*_in_repository()]
    with tempfile.TemporaryDirectory() as temporary:
        inside: dict[str, list[tuple[str, str]]] = {}
        for subject, path in subjects.templates.items():
            for resource, text in _scripts_inside(json.loads(path.read_text("utf-8"))):
                inside.setdefault(text, []).append((subject, resource))
        names = {}
        for i, (text, places) in enumerate(inside.items()):
            names[f"{i}.sh"] = places
            (Path(temporary) / f"{i}.sh").write_text(text, "utf-8")
        for comment in _shellcheck(Path(temporary), [Path(name) for name in names], ["--shell=bash"]) if names else []:
            found += [_shell_finding(subject, resource, comment) for subject, resource in names[comment["file"]]]
    same: dict[bytes, list[str]] = {}  # most environments render the same text: scan it once
    for name, path in subjects.scripts.items():
        same.setdefault(path.read_bytes(), []).append(name)
    by_path = {str(subjects.scripts[names[0]]): names for names in same.values()}
    options = ["--shell=bash", _ACROSS_FILES]
    for comment in _shellcheck(ROOT, [Path(path) for path in by_path], options) if by_path else []:
        for name in by_path[comment["file"]]:
            subject, _, script = name.partition(":")
            found.append(_shell_finding(subject, script, comment))
    return found


@functools.cache
def _in_repository() -> list[Finding]:
    # golden files are excerpts of the scripts of jobs
    scripts = [ROOT / name for name in tracked() if name.endswith(".sh") and "/golden/" not in name]
    nodes = [s for s in scripts if s.is_relative_to(ROOT / "bootstrap")]  # these source each other by relative paths
    others = [s for s in scripts if s not in nodes]
    found = []
    for folder, files, strict in ((ROOT / "bootstrap", nodes, [_STRICT]), (ROOT, others, [])):
        for comment in _shellcheck(folder, files, strict) if files else []:
            name = str((folder / comment["file"]).relative_to(ROOT))
            found.append(_shell_finding(REPOSITORY, name, comment))
    return found


def bandit(_subjects: Subjects) -> list[Finding]:
    """All Python but the tests."""
    report = json.loads(run([THERE / "bandit", "--quiet", "--recursive", "--format", "json", *PYTHON]))
    return [
        Finding(
            scanner="bandit",
            rule=result["test_id"],
            subject=REPOSITORY,
            resource=str(Path(result["filename"])),
            message=f"{result['issue_text']} (line {result['line_number']})",
        )
        for result in report["results"]
    ]


def detect_secrets(_subjects: Subjects) -> list[Finding]:
    """Every file of the repository but the lock files. Without verification over the network.

    Its own scan calls each detector for each line through a slow layer. So the detectors are called directly first, and only files
    in which one of them sees something are scanned.
    """
    secrets = SecretsCollection(root=str(ROOT))
    with default_settings():  # without the filter that would verify a secret
        detectors, seen = get_plugins(), dict[tuple[str, str], bool]()
        for name in tracked():
            if re.search(_LOCK_FILES, name):
                continue
            kind = Path(name).suffix  # what a detector sees depends on it
            for line in {line.rstrip() for lines in _get_lines_from_file(str(ROOT / name)) for line in lines}:
                if (kind, line) not in seen:
                    seen[kind, line] = any(each.analyze_line(filename=name, line=line) for each in detectors)
                if seen[kind, line]:
                    secrets.scan_file(name)
                    break
    return [
        Finding(
            scanner="detect-secrets",
            rule=secret.type,
            subject=REPOSITORY,
            resource=name,
            message=f"line {secret.line_number}",
        )
        for name, secret in secrets
    ]


def tracked() -> list[str]:
    """The files of the repository, including untracked ones, by relative path."""
    listed = run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        accepted=(0,),
    )
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def _shellcheck(folder: Path, files: list[Path], options: list[str]) -> list[dict[str, Any]]:
    command = [HERE / "shellcheck", "--norc", "--external-sources", "--format=json1", *options, *files]
    found: list[dict[str, Any]] = json.loads(run(command, cwd=folder))["comments"]
    return found


def _shell_finding(subject: str, resource: str, comment: dict[str, Any]) -> Finding:
    return Finding(
        scanner="shellcheck",
        rule=f"SC{comment['code']}",
        subject=subject,
        resource=resource,
        message=f"{comment['message']} (line {comment['line']})",
    )


def _scripts_inside(template: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Logical id and text of every script in a template."""
    for name, resource in template["Resources"].items():
        for encoded in values(resource, "Fn::Base64"):
            for script in _SCRIPT_PART.findall(plain(encoded)):
                yield name, script
        if resource["Type"] == "AWS::CodeBuild::Project":
            specification = json.loads(plain(resource["Properties"]["Source"]["BuildSpec"]))
            commands = [c for phase in specification["phases"].values() for c in phase["commands"]]
            given = [v["Name"] for v in resource["Properties"]["Environment"].get("EnvironmentVariables", [])]
            yield name, "\n".join([*(f"export {variable}=given" for variable in given), *commands, ""])
