"""The parts of the local Kubernetes that can be tested without starting it."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.kubernetes import (
    build,
    container,
    helm,
    kwok_config,
    nodes,
    offline,
    pod_spec,
    schemas,
    volcano,
)
from sandbox.kubernetes.logs import LogWriter
from sandbox.local_aws import SHIMS
from sandbox.testing import completed, need, need_kubernetes
from trainium_cdk import settings
from trainium_cdk.cdk.eks import charts
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.description.catalog import Catalog

Object = dict[str, Any]
POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "train-trainer-1",
        "namespace": "training",
        "uid": "u-1",
        "labels": {"volcano.sh/task-index": "1"},
    },
    "spec": {
        "hostname": "train-trainer-1",
        "subdomain": "train",
        "nodeName": "ip-10-0-0-16.ec2.internal",
        "containers": [{"name": "trainer", "image": "registry.example/train:1"}],
    },
}
CONFIG = {"kind": "ConfigMap", "data": {"COLOUR": "blue", "hosts": "a\nb\n"}}
SECRET = {"kind": "Secret", "data": {"word": "aHVzaA=="}}


def lookup(kind: str, name: str) -> Object | None:
    claim = {"spec": {"volumeName": "fsx"}}
    return {
        ("ConfigMap", "settings"): CONFIG,
        ("Secret", "keys"): SECRET,
        ("PersistentVolumeClaim", "data"): claim,
    }.get((kind, name))


@pytest.mark.parametrize("instance", sorted(Catalog.load().instances))
def test_nodes_have_the_devices_of_the_catalogue(instance: str) -> None:
    facts = Catalog.load().instance(instance)
    made = nodes.node(facts, "ip-10-0-0-16.ec2.internal", zone="us-east-1b", zone_id="use1-az5")
    assert schemas.validate(made) == []
    can = made["status"]["allocatable"]
    assert can["aws.amazon.com/neuron"] == str(facts.neuron_devices)
    assert can.get("vpc.amazonaws.com/efa") == (str(facts.efa_interfaces) if facts.efa_interfaces else None)
    assert made["metadata"]["labels"]["topology.kubernetes.io/region"] == "us-east-1"
    assert schemas.validate(nodes.csi_node(made)) == []


def test_a_system_node_has_no_devices() -> None:
    made = nodes.system_node("ip-10-0-0-17.ec2.internal", zone="us-east-1b")
    assert schemas.validate(made) == []
    assert not [name for name in made["status"]["capacity"] if "/" in name]


def test_the_webhooks_are_valid_and_follow_the_names_their_server_looks_for() -> None:
    made = volcano.webhook_configurations(8443, "Y2E=")
    assert schemas.validate_all(made) == []
    assert "volcano-admission-service-jobs-validate" in {one["metadata"]["name"] for one in made}


def test_kwok_does_not_change_running_jobs() -> None:
    kept, all_pods = kwok_config.render(run_jobs=True), kwok_config.render(run_jobs=False)
    assert kept.count("operator: NotIn, values: [volcano]") == kept.count("resourceRef: {apiGroup: v1, kind: Pod}") == 5
    assert "schedulerName" not in all_pods


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(UNKNOWN) $A ${A}", "$(UNKNOWN) $A ${A}"),
        ("$$(A)", "$(A)"),
        ("cost: $$5, $$(date +%s)", "cost: $5, $(date +%s)"),
    ],
)
def test_variables_expand_as_in_kubernetes(text: str, expanded: str) -> None:
    assert pod_spec.expand(text, {"A": "1", "B": "2"}) == expanded


def test_variables_come_in_the_kubelets_order_and_from_all_sources() -> None:
    container = {
        "name": "trainer",
        "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "MY_"}],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['volcano.sh/task-index']"}}},
            {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "word"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "ALL", "value": "$(POD)/$(RANK)/$(MY_COLOUR)/$(LATER)"},
            {"name": "LATER", "value": "x"},
        ],
        "resources": {"limits": {"cpu": "8"}},
    }
    env = pod_spec.environment(POD, container, lookup)
    assert env["ALL"] == "train-trainer-1/1/blue/$(LATER)"
    assert (env["WORD"], env["CPU"], env["HOSTNAME"]) == ("hush", "8", "train-trainer-1")


def test_volumes_are_mounted_at_the_pods_paths(tmp_path: Path) -> None:
    pod = json.loads(json.dumps(POD))
    pod["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "settings", "configMap": {"name": "settings", "items": [{"key": "hosts", "path": "list"}]}},
        {"name": "disk", "hostPath": {"path": "/local_nvme"}},
    ]
    container = {
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "subPath": "bert"},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "settings", "mountPath": "/etc/volcano", "readOnly": True},
            {"name": "disk", "mountPath": "/scratch"},
        ]
    }
    data, shm, settings, disk = pod_spec.mounts(pod, container, tmp_path, lookup)
    assert data.source == tmp_path / "volumes/fsx/bert"
    assert shm.source == tmp_path / "pods/training/train-trainer-1/volumes/shm"
    assert settings.read_only
    assert settings.files == {"list": b"a\nb\n"}
    assert disk.source == tmp_path / "hosts/ip-10-0-0-16.ec2.internal/local_nvme"


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True), st.integers(0, 64))
def test_every_pod_has_a_loopback_address_by_which_others_find_it(job: str, rank: int) -> None:
    pod = {"metadata": {"name": f"{job}-{rank}", "namespace": "n"}, "spec": {"subdomain": job}}
    where, *names = pod_spec.hosts_lines(pod).split()
    assert where == pod_spec.address("n", f"{job}-{rank}")
    assert [0 <= int(part) <= 255 for part in where.split(".")] == [True] * 4
    assert where.startswith("127.")
    assert not where.startswith("127.0.")
    assert f"{job}-{rank}.{job}" in names


def test_log_lines_are_the_kubelets(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "deep/main.log") as log:
        log.write("step 1\n")
        log.write("ouch", "stderr")
    first, second = (tmp_path / "deep/main.log").read_text().splitlines()
    assert first.split(" ", 1)[1] == "stdout F step 1"
    assert second.split(" ", 1)[1] == "stderr F ouch"


def volcano_job(**spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/a:1"}]}}
    tasks = [{"name": "trainer", "replicas": 2, "template": template}]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"minAvailable": 2, "tasks": tasks, **spec},
    }


def queue(**spec: Any) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "trn"},
        "spec": {"weight": 1, **spec},
    }


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (volcano_job(), ""),
        (volcano_job(minAvailabel=2), "Job train: spec: Additional properties are not allowed ('minAvailabel'"),
        (volcano_job(minAvailable="two"), "Job train: spec.minAvailable: 'two' is not of type 'integer'"),
        (
            volcano_job(tasks=[{"name": "a", "template": {"spec": {"containers": [{"name": "m", "imgae": "x"}]}}}]),
            "Job train: spec.tasks[0].template.spec.containers[0]: Additional properties",
        ),
        (volcano_job(policies=[{"event": "Nothing"}]), "Job train: spec.policies[0].event: 'Nothing' is not one of"),
        (queue(capability={"cpu": 2, "aws.amazon.com/neuron": "32"}), ""),
        (queue(weight=0), "Queue trn: spec.weight: 0 is less than the minimum of 1"),
        (POD, ""),
        ({**POD, "spec": {"contaners": []}}, "Pod train-trainer-1: spec: "),
        ({**POD, "apiVersion": "v9"}, "Pod train-trainer-1: v9 has no kind Pod"),
        ({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "trn"}}, ""),
        ({"kind": "Pod"}, "an object without apiVersion and metadata"),
    ],
)
def test_schema_errors_have_a_reason_and_a_path(thing: Object, message: str) -> None:
    need_kubernetes(volcano=True)
    found = schemas.validate(thing)
    assert (found == []) if not message else found[0].startswith(message), found


def jobset(**changes: Any) -> Object:
    template = {"spec": {"template": {"spec": {**POD["spec"], "restartPolicy": "Never"}, **changes}}}
    jobs = [{"name": "train", "replicas": 1, "template": template}]
    about = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}}
    return {**about, "spec": {"replicatedJobs": jobs}}


WRONG_JOB = "JobSet set: Job train: spec.template: Additional properties"


@pytest.mark.parametrize("built", [True, False])
def test_definitions_are_those_of_the_build(built: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without one, Kubernetes' own schemas judge what they can: also the Jobs in a JobSet."""
    if built:
        need_kubernetes(volcano=True)
    else:
        monkeypatch.setattr(build, "CACHE", tmp_path)
    schemas._custom.cache_clear()
    of_set = {**jobset(), "spec": {**jobset()["spec"], "sucessPolicy": {}}}
    found = schemas.validate_all(
        [jobset(), jobset(spce={}), {**POD, "apiVersion": "v9"}, of_set, volcano_job(minAvailable="two")]
    )
    schemas._custom.cache_clear()
    assert found[0].startswith(WRONG_JOB), found
    assert found[1] == "Pod train-trainer-1: v9 has no kind Pod, or its schema is not included"
    assert len(found) == (4 if built else 2)


def test_list_items_are_validated() -> None:
    need_kubernetes(volcano=True)
    wrong = {"apiVersion": "v1", "kind": "List", "items": [volcano_job(), volcano_job(minAvailable="two")]}
    assert len(schemas.validate_all([wrong])) == 1


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_helm_as_the_kubectl_provider_calls_it(sandbox: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pull from a registry, upgrade --install from what that left, upgrade again, uninstall, uninstall again."""
    oci = "oci://registry.example/neuron/neuron-helm-chart"
    assert helm.main(["pull", oci, "--version", "1.10.0", "--untar"]) == 0
    values = sandbox / "values.yaml"
    values.write_text('{"npd": {"enabled": true}}')
    common = ["--namespace", "kube-system", "--kubeconfig", "k"]
    install = ["upgrade", "neuron", "neuron-helm-chart", "--install", "--values", str(values), "--wait", *common]
    assert helm.main(install) == 0
    values.write_text('{"npd": {"enabled": false}}')
    assert helm.main(install) == 0
    assert helm.main(["status", "neuron", "-n", "kube-system"]) == 0
    assert "REVISION: 2" in capsys.readouterr().out
    remove = ["uninstall", "neuron", "--wait", "--timeout", "900s", *common]
    assert [helm.main(remove), helm.main(remove)] == [0, 1]
    assert "release: not found" in capsys.readouterr().err
    pulled, first, second, removed = helm.calls(sandbox)
    assert (pulled["chart"], pulled["version"]) == (oci, "1.10.0")
    assert (first["chart"], first["version"], first["wait"], first["namespace"]) == (oci, "1.10.0", True, "kube-system")
    assert [first["values"], second["values"]] == [{"npd": {"enabled": True}}, {"npd": {"enabled": False}}]
    assert removed["verb"] == "uninstall"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pull", "oci://registry.example/chart", "--untar"], "without --version"),
        (["upgrade", "a", "oci://registry.example/chart", "--install"], "without --version"),
        (["upgrade", "a", "chart", "--version", "1.0.0"], '"a" has no deployed releases'),
        (["status", "a"], "release: not found"),
    ],
)
def test_helm_refuses(sandbox: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert helm.main(arguments) == 1
    assert message in capsys.readouterr().err
    assert helm.calls(sandbox) == []


CHART = ["oci://registry.example/neuron/neuron-helm-chart", "--version", "1.10.0"]
OFF = {"devicePlugin": {"enabled": False}, "npd": {"enabled": False}}
DRIVER = {"draDriver": {"enabled": True}}


def chart(sandbox: Path, release: str, values: Object) -> int:
    (sandbox / "values.yaml").write_text(json.dumps(values))
    return helm.main(["upgrade", release, *CHART, "--install", "--values", str(sandbox / "values.yaml")])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (DRIVER, "DRA driver and device plugin cannot both be enabled"),
        ({**DRIVER, **OFF, "scheduler": {"enabled": True}}, "DRA driver and scheduler cannot both be enabled"),
        ({**OFF, "scheduler": {"enabled": True}}, "Scheduler requires device plugin to be enabled"),
        ({"npd": {"enabled": False}}, "devicePlugin exists and cannot be imported into the current release"),
    ],
)
def test_what_the_neuron_chart_refuses(
    sandbox: Path, capsys: pytest.CaptureFixture[str], values: Object, message: str
) -> None:
    assert chart(sandbox, "neuron", {}) == 0
    assert chart(sandbox, "other", values) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("plugins", "devices"), [("plugin", "plugin"), ("plugin", "claims"), ("claims", "claims")])
def test_the_neuron_chart_takes_the_stacks_releases(
    sandbox: Path, monkeypatch: pytest.MonkeyPatch, plugins: str, devices: str
) -> None:
    monkeypatch.setenv("PATH", f"{SHIMS}:{os.environ['PATH']}")
    groups = [
        {"name": "a", "instance_type": "trn2.48xlarge"},
        {"name": "b", "instance_type": "trn2.48xlarge", "devices": devices},
    ]
    env = settings.validate({"eks": {"plugins": {"devices": plugins}, "node_groups": groups}})
    made = [one for one in charts.releases(Installation.of(env)) if one.name.startswith("neuron")]
    assert [chart(sandbox, one.name, one.values) for one in made] == [0] * len(made)
    assert made


def test_the_class_of_devices_comes_and_goes_with_the_release_of_the_driver(
    sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{SHIMS}:{os.environ['PATH']}")
    assert [chart(sandbox, "neuron", {}), chart(sandbox, "neuron-claims", {**DRIVER, **OFF})] == [0, 0]
    assert helm.main(["uninstall", "neuron-claims"]) == 0
    lines = [json.loads(line) for line in (sandbox / "kubectl.jsonl").read_text().splitlines()]
    told = [(line["verb"], [o["kind"] for o in line["objects"]], line["problems"]) for line in lines]
    assert told == [("apply", ["Namespace", "DeviceClass"], []), ("delete", ["DeviceClass"], [])]


@pytest.mark.sweep
def test_without_an_api_server_kubectl_validates_and_records(sandbox: Path) -> None:
    """Through the very command that CDK's kubectl provider finds on PATH."""
    need_kubernetes(volcano=True)
    env = {"PATH": os.environ["PATH"], "SANDBOX_DIR": str(sandbox)}
    manifest = sandbox / "manifest.yaml"
    manifest.write_text(json.dumps(queue()) + json.dumps(volcano_job(minAvailable="two")))

    def kubectl(verb: str) -> subprocess.CompletedProcess[str]:
        command = [str(SHIMS / "kubectl"), verb, "--kubeconfig", "k", "-f", str(manifest), "--save-config"]
        return completed(command, env=env)

    refused = kubectl("create")
    assert refused.returncode == 1
    assert refused.stderr == "error: Job train: spec.minAvailable: 'two' is not of type 'integer'\n"
    manifest.write_text(json.dumps(queue()) + json.dumps(volcano_job()))
    assert kubectl("create").returncode == kubectl("delete").returncode == 0
    lines = [json.loads(line) for line in (sandbox / "kubectl.jsonl").read_text().splitlines()]
    assert [(line["verb"], len(line["objects"]), len(line["problems"])) for line in lines] == [
        ("create", 2, 1),
        ("create", 2, 0),
        ("delete", 2, 0),
    ]


def test_manifests_are_read_as_json_after_json_or_as_yaml() -> None:
    assert offline.read('{"a": 1}{"a": 2}\n{"a": 3}') == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert offline.read("a: 1\n---\na: 2\n") == [{"a": 1}, {"a": 2}]


def test_the_built_versions_are_those_of_the_catalogue() -> None:
    facts = Catalog.load().eks
    assert build.version("k8s.io/kubernetes").rpartition(".")[0] == facts.default
    for module, chart in {
        "volcano.sh/volcano": "volcano",
        "sigs.k8s.io/kueue": "kueue",
        "sigs.k8s.io/jobset": "jobset",
    }.items():
        assert build.version(module) == facts.charts[chart].version


def test_containers_of_an_ordinary_user_may_write_to_dev_null() -> None:
    """Where a file is mounted below /dev, the container has a /dev of its own."""
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # pytest's own folders are closed to others
        program = shutil.copy(inspect.getfile(container), folder)
        (folder / "root").mkdir()
        (folder / "message").touch()
        if user:
            os.chown(folder / "root", 65534, 65534)
        spec: Object = {
            "env": {"PATH": "/usr/bin:/bin"},
            "root": str(folder / "root"),
            "mounts": [{"source": str(folder / "message"), "place": "/dev/termination-log", "read_only": False}],
            "hostname": "trainer",
            "directory": "",
            "command": ["sh", "-c", "echo x > /dev/null && echo written"],
        }
        (folder / "spec.json").write_text(json.dumps(spec))
        words = [*user, "unshare", "--mount", "--uts", "--user", "--map-root-user"]
        need(subprocess.run([*words, "true"], check=False).returncode == 0, "users may not make namespaces here")
        done = completed([*words, "/usr/bin/python3", program, folder / "spec.json"])
        assert (done.stdout, done.stderr) == ("written\n", "")
