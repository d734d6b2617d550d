"""Kueue and JobSet as the stack installs them: judged by their own charts, which Helm renders, and by the definition of their dependency."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from sandbox.kubernetes import build, kueue
from sandbox.kubernetes.api import load_all
from tests.support import need_kubernetes
from tools import catalogue
from trainium_cdk.cdk.eks import provisioning_requests
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.lookup import read

IMAGES = {"jobset": "registry.k8s.io/jobset/jobset", "kueue": "registry.k8s.io/kueue/kueue"}


@pytest.fixture(autouse=True)
def _built() -> None:
    need_kubernetes()


def _keys(values: Any, path: str = "") -> set[str]:
    if not isinstance(values, dict):
        return {path}
    return {key for name, value in values.items() for key in _keys(value, f"{path}.{name}".strip("."))}


@pytest.mark.parametrize("release", kueue.releases(), ids=lambda release: release.name)
def test_values_are_the_charts_own_and_give_the_released_image(release: Any) -> None:
    """Helm ignores values that a chart does not know."""
    folder = build.chart(release.name)
    chart, defaults = (YAML(typ="safe").load(folder / name) for name in ("Chart.yaml", "values.yaml"))
    assert chart["version"] == release.version
    assert _keys(release.values) <= _keys(defaults)
    assert read("charts")["charts"][release.name] == {
        "version": release.version,
        "keys": catalogue.chart_keys(defaults),
    }
    facts = Catalog.load().eks.charts[release.name]
    assert set(facts.images) <= _keys(defaults)
    [pod] = [o["spec"]["template"]["spec"] for o in kueue.rendered(release) if o["kind"] == "Deployment"]
    assert [c["image"] for c in pod["containers"]] == [f"{IMAGES[release.name]}:v{release.version}"]
    assert pod["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_webhooks_of_jobs_concern_our_namespaces_alone() -> None:
    """Where Kueue does not answer, nothing else in the cluster is refused."""
    _, release = kueue.releases()
    hooks = [hook for one in kueue.rendered(release) if "webhooks" in one for hook in one["webhooks"]]
    own = {"kueue.x-k8s.io"}
    others = [hook for hook in hooks if {g for rule in hook["rules"] for g in rule["apiGroups"]} != own]
    assert len(others) > 20
    selectors = [hook["namespaceSelector"] for hook in others if hook["failurePolicy"] == "Fail"]
    assert all(selector == {"matchLabels": {"trainium-cdk/queues": "true"}} for selector in selectors)


def test_no_job_is_stopped_because_its_pods_are_not_ready() -> None:
    """They are not while they compile, nor while a training does not go on."""
    _, release = kueue.releases()
    found = [text for one in kueue.rendered(release) if one["kind"] == "ConfigMap" for text in one["data"].values()]
    [wanted] = [text for text in found if "managedJobsNamespaceSelector" in text]
    assert "waitForPodsReady" not in YAML(typ="safe").load(wanted)


def test_the_definition_of_provisioning_requests_is_the_vendors() -> None:
    [theirs] = load_all(build.crds("autoscaler"))
    del theirs["metadata"]["annotations"]
    assert _without_descriptions(theirs) == provisioning_requests.definition()


def _without_descriptions(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_descriptions(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: v for k, v in schema.items() if not (k == "description" and isinstance(v, str))}
    return {key: _without_descriptions(value) for key, value in kept.items()}
