"""Validates objects without an API server: Kubernetes' official schemas, and the definitions of JobSet and Volcano.

Both definitions come from the modules that `build` has compiled. Before that, only the Jobs in a JobSet are checked.
Unlike an API server it does not check Kueue's objects, defaults, immutable fields, references to missing objects,
admission (`minAvailable` above the number of replicas, an unknown queue), and whether a job fits the nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import yaml

from sandbox.kubernetes import build

Object = dict[str, Any]

_KUEUE = "kueue.x-k8s.io/"
"""Group of objects whose definitions are not kept here: only a real API server validates them."""
_JOBSET = "jobset.x-k8s.io/"
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
        return found or _jobs_of(thing, title)
    try:
        kubernetes_validate.validate(thing, build.version("k8s.io/kubernetes"), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [_sentence(title, error)]
    except kubernetes_validate.SchemaNotFoundError:
        group, unknown = str(thing["apiVersion"]), [_KUEUE]
        unknown += [] if build.KUEUE.built else [_JOBSET]
        unknown += [] if build.VOLCANO.built else _VOLCANO
        if group.startswith(tuple(unknown)):
            return _jobs_of(thing, title)
        return [f"{title}: {thing['apiVersion']} has no kind {thing['kind']}, or its schema is not included"]
    return []


def _jobs_of(thing: Object, title: str) -> list[str]:
    """Errors of the Jobs in a JobSet, by Kubernetes' own schema."""
    inner = thing["spec"].get("replicatedJobs", []) if thing["kind"] == "JobSet" else []
    jobs = [
        {"apiVersion": "batch/v1", "kind": "Job", **job["template"], "metadata": {"name": job["name"]}} for job in inner
    ]
    return [f"{title}: {sentence}" for sentence in validate_all(jobs)]


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
    volcano = build.crds("volcano") if build.VOLCANO.built else []
    jobset = build.chart("jobset").glob("crds/*jobsets.yaml")
    for file in (*jobset, *(file for file in volcano if file.name.startswith(_VOLCANO_FILES))):
        spec = yaml.load(file.read_text("utf-8"), yaml.CSafeLoader)["spec"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            if spec["names"]["kind"] == "JobSet":
                jobs = schema["properties"]["spec"]["properties"]["replicatedJobs"]["items"]["properties"]
                jobs["template"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}  # see `_jobs_of`
            schema["properties"]["metadata"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = _strict(schema)
    return found


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
