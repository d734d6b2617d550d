"""Validates objects without an API server: Kubernetes' official schemas, and the definitions of JobSet and Volcano.

Volcano's are those of the modules that `build` has compiled: before, its objects are not checked.
Unlike an API server it does not check Kueue's objects, defaults, immutable fields, references to missing objects,
admission (`minAvailable` above the number of replicas, an unknown queue), and whether a job fits the nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
from ruamel.yaml import YAML

from sandbox.kubernetes import build

Object = dict[str, Any]

JOBSET = Path(__file__).parent / "jobset_crd.yaml"
"""JobSet's definition, reduced (`reduced`)."""
_KUEUE = "kueue.x-k8s.io/"
"""Group of objects whose definitions are not kept here: only a real API server validates them."""
_VOLCANO = ("batch.volcano.sh/", "scheduling.volcano.sh/")
_VOLCANO_FILES = ("batch.volcano.sh_jobs.", "scheduling.volcano.sh_podgroups.", "scheduling.volcano.sh_queues.")
_INT_OR_STRING = {"type": ["integer", "string"]}


def validate(thing: Object) -> list[str]:
    """Errors of an object, one sentence each with the path; empty if it is valid.

    Unknown fields are errors: an API server would silently drop them.
    """
    missing = [name for name in ("apiVersion", "kind", "metadata") if not thing.get(name)]
    if missing:
        return [f"an object without {' and '.join(missing)}"]
    title = f"{thing['kind']} {thing['metadata'].get('name', '(unnamed)')}"
    schema = _custom().get((thing["apiVersion"], thing["kind"]))
    if schema is not None:
        errors = jsonschema.Draft202012Validator(schema).iter_errors(thing)
        found = [_sentence(title, error) for error in sorted(errors, key=lambda error: list(map(str, error.path)))]
        if thing["kind"] == "JobSet" and not found:
            inner = [(job["name"], job["template"]) for job in thing["spec"].get("replicatedJobs", [])]
            jobs = [{"apiVersion": "batch/v1", "kind": "Job", **job, "metadata": {"name": name}} for name, job in inner]
            found = [f"{title}: {sentence}" for sentence in validate_all(jobs)]
        return found
    try:
        kubernetes_validate.validate(thing, build.version("k8s.io/kubernetes"), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [_sentence(title, error)]
    except kubernetes_validate.SchemaNotFoundError:
        group = str(thing["apiVersion"])
        if group.startswith(_KUEUE) or (group.startswith(_VOLCANO) and build.available() is not None):
            return []
        return [f"{title}: {thing['apiVersion']} has no kind {thing['kind']}, or its schema is not included"]
    return []


def validate_all(things: Iterable[Object]) -> list[str]:
    """`validate` for several objects and the items of a `List`."""
    found = []
    for thing in things:
        found += validate_all(thing["items"]) if thing.get("kind") == "List" else validate(thing)
    return found


def _sentence(title: str, error: jsonschema.ValidationError) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
    return f"{title}{': ' + place.lstrip('.') if place else ''}: {error.message}"


@functools.cache
def _custom() -> dict[tuple[str, str], Object]:
    """Schemas of JobSet and Volcano by (apiVersion, kind)."""
    found: dict[tuple[str, str], Object] = {}
    volcano = [] if build.available() else [f for f in build.crds("volcano") if f.name.startswith(_VOLCANO_FILES)]
    for file in (JOBSET, *volcano):
        spec = YAML(typ="safe").load(file)["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = _strict(schema)
    return found


def reduced(definition: Object) -> Object:
    """JobSet's definition without descriptions, and without those of a Job, which Kubernetes' own schema validates."""

    def plain(part: Any) -> Any:
        if isinstance(part, list):
            return [plain(one) for one in part]
        if not isinstance(part, dict):
            return part
        return {k: plain(v) for k, v in part.items() if not (k == "description" and isinstance(v, str))}

    [version] = [v for v in definition["spec"]["versions"] if v["storage"]]
    schema = plain(version["schema"]["openAPIV3Schema"])
    spec = schema["properties"]["spec"]["properties"]
    spec["replicatedJobs"]["items"]["properties"]["template"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    del spec["volumeClaimPolicies"], schema["properties"]["status"]
    versions = [{"name": version["name"], "schema": {"openAPIV3Schema": schema}}]
    return {
        "spec": {
            "group": definition["spec"]["group"],
            "names": {"kind": definition["spec"]["names"]["kind"]},
            "versions": versions,
        }
    }


def _strict(schema: Any) -> Any:
    """The OpenAPI schema as JSON Schema, with the API server's extensions, rejecting unknown fields where it lists fields."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return _INT_OR_STRING
    made = {
        name: {key: _strict(value) for key, value in part.items()} if name == "properties" else _strict(part)
        for name, part in schema.items()
        if name != "description" and not name.startswith("x-kubernetes-")
    }
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    if made.pop("nullable", False) and isinstance(made.get("type"), str):
        made["type"] = [made["type"], "null"]
    return made
