"""What is rendered for EKS without a CDK: interfaces, user data, charts, objects, sizes."""

from __future__ import annotations

import email
import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from sandbox.kubernetes import schemas, volcano
from sandbox.paths import HOME as ROOT
from tests.support import completed
from trainium_cdk import outputs, settings
from trainium_cdk.cdk.eks import access, charts, kueue, manifests
from trainium_cdk.cdk.eks.boundaries import boundaries, network_policies
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.cdk.eks.user_data import NEURON_FINGERPRINT, ApiServer, Driver, user_data
from trainium_cdk.cdk.helpers.launch_templates import Layout, interfaces
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL
from trainium_cdk.description.outputs.eks import DEVICES_LABEL
from trainium_cdk.description.settings import Environment

CATALOG = Catalog.load()
GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Mounted:
    kind: str
    id: str
    dns_name: str = ""
    mount_name: str = ""
    owned: bool = True


EFS = Mounted("efs", "fs-0123456789abcdef0")
FOLDERS = {"training": "fsap-0123456789abcdef0", "speech": "fsap-0123456789abcdef1"}
FSX = Mounted("fsx", "fs-0123456789abcdef1", "fs-0123456789abcdef1.fsx.us-east-1.amazonaws.com", "abcdefgh")
BOTH: dict[str, Any] = {"storage": {"efs": {}, "fsx": {}}}


def env(**data: Any) -> Environment:
    return settings.validate(data)


# --- interfaces ---

A, B, C = "efa", "efa-only", "ena-and-efa-only"
TABLE: list[tuple[str, Layout, list[tuple[int, int, str]], int]] = [
    ("trn1.2xlarge", A, [], 0),
    ("trn1.2xlarge", B, [], 0),
    ("trn1.2xlarge", C, [], 0),
    ("trn1.32xlarge", A, [(0, 0, "efa"), *((card, 1, "efa") for card in range(1, 8))], 8),
    ("trn1.32xlarge", B, [(0, 0, "efa"), *((card, 1, "efa-only") for card in range(1, 8))], 1),
    ("trn1.32xlarge", C, [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 8))], 1),
    ("trn1n.32xlarge", A, [(0, 0, "efa"), *((card, 1, "efa") for card in range(1, 16))], 16),
    ("trn1n.32xlarge", B, [(0, 0, "efa"), *((card, 1, "efa-only") for card in range(1, 16))], 1),
    ("trn1n.32xlarge", C, [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 16))], 1),
    ("trn2.3xlarge", A, [(0, 0, "efa")], 1),
    ("trn2.3xlarge", B, [(0, 0, "efa")], 1),
    ("trn2.3xlarge", C, [(0, 0, "interface"), (0, 1, "efa-only")], 1),
    ("trn2.48xlarge", B, [(0, 0, "efa"), *((card, 1, "efa-only") for card in range(1, 16))], 1),
    ("trn2u.48xlarge", C, [(0, 0, "interface"), (0, 1, "efa-only"), *((card, 0, "efa-only") for card in range(1, 16))], 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "layout", "expected", "taken"), TABLE, ids=[f"{n} {layout}" for n, layout, _, _ in TABLE]
)
def test_interfaces(name: str, layout: Layout, expected: list[tuple[int, int, str]], taken: int) -> None:
    kind = CATALOG.instance(name)
    found = interfaces(kind, layout)
    assert [(i.card, i.device, i.kind) for i in found] == expected
    # those that take an address of the subnet
    assert sum(i.kind != "efa-only" for i in found) == taken


@pytest.mark.parametrize("layout", [A, B, C])
@pytest.mark.parametrize("name", sorted(CATALOG.instances))
def test_every_layout_gives_all_efa(name: str, layout: Layout) -> None:
    kind = CATALOG.instance(name)
    found = interfaces(kind, layout)
    assert sum(i.kind.startswith("efa") for i in found) == kind.efa_interfaces
    assert len({(i.card, i.device) for i in found}) == len(found)
    assert all(i.card < kind.network_cards for i in found)
    # the node's own address is there, and EC2 refuses efa-only for it
    assert not found or (found[0].card, found[0].device, found[0].kind != "efa-only") == (0, 0, True)


# --- user data ---


def parts(text: str) -> dict[str, str]:
    message = email.message_from_string(text)
    assert message.is_multipart()
    return {p.get_content_type(): str(p.get_payload()) for p in message.walk() if not p.is_multipart()}


def test_user_data_is_mime_that_cloud_init_reads(tmp_path: Path) -> None:
    found = parts(user_data(huge_pages="5Gi", locked_memory=True, local_storage=True))
    assert set(found) == {"text/x-shellscript", "application/node.eks.aws"}
    assert "pages=2560" in found["text/x-shellscript"]
    config = YAML(typ="safe").load(found["application/node.eks.aws"])
    assert config == {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "containerd": {
                "baseRuntimeSpec": {
                    "process": {
                        "rlimits": [
                            {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576},
                            {"type": "RLIMIT_MEMLOCK", "soft": 1125899906842624, "hard": 1125899906842624},
                        ]
                    }
                }
            },
            "instance": {"localStorage": {"strategy": "RAID0"}},
        },
    }
    script = tmp_path / "script.sh"
    script.write_text(found["text/x-shellscript"])
    checked = completed(["shellcheck", script])
    assert (checked.returncode, checked.stdout) == (0, "")


DRIVER = Driver("2.31.7.0", "https://yum.example.com/neuron", "https://yum.example.com/key.pub")


def test_the_driver_is_installed_before_the_users_own_script(tmp_path: Path) -> None:
    """In a part of its own: cloud-init runs the others, too, if it fails. tests/bootstrap runs it."""
    own = "#!/bin/sh\nmodinfo neuron\n"
    message = email.message_from_string(user_data(huge_pages="5Gi", lnc=2, driver=DRIVER, own=own))
    scripts = [str(p.get_payload()) for p in message.walk() if p.get_content_type() == "text/x-shellscript"]
    assert [s.strip() for s in scripts[1:]] == [DRIVER.script.strip(), own.strip()]
    script = tmp_path / "script.sh"
    script.write_text(DRIVER.script)
    checked = completed(["shellcheck", script])
    assert (checked.returncode, checked.stdout) == (0, "")
    hostile = Driver("1; reboot", "https://x/$(reboot)", "https://x/`reboot`").script
    assert "wanted='1; reboot'" in hostile
    assert "'https://x/`reboot`'" in hostile


def test_user_data_with_everything_fits_into_an_instance() -> None:
    """EC2 takes 16 KiB, and `eks.node_groups[].user_data` may have 12,000 bytes of it."""
    everything = user_data(
        huge_pages="5Gi", locked_memory=True, local_storage=True, lustre=True, lnc=2, driver=DRIVER, own="#" * 12_000
    )
    assert len(everything.encode()) <= 16 * 1024


def test_the_key_is_the_one_that_slurm_nodes_expect() -> None:
    settings = (ROOT / "bootstrap/lib/settings.sh").read_text()
    assert f"[TRN_NEURON_KEY_FINGERPRINT]={NEURON_FINGERPRINT}\n" in settings


def test_user_data_of_an_own_image() -> None:
    cluster = ApiServer("trn-eks", "https://x.eks.amazonaws.com", "QUJD" * 400, "172.20.0.0/16")
    config = YAML(typ="safe").load(parts(user_data(cluster=cluster))["application/node.eks.aws"])
    assert config["spec"]["cluster"] == {
        "name": "trn-eks",
        "apiServerEndpoint": "https://x.eks.amazonaws.com",
        "certificateAuthority": "QUJD" * 400,
        "cidr": "172.20.0.0/16",
    }


def test_a_script_of_the_users_own_comes_last_and_unchanged() -> None:
    own = "#!/bin/sh\necho 'Zoë' > /etc/lab\n"
    message = email.message_from_string(user_data(huge_pages="5Gi", lnc=1, own=own))
    scripts = [str(p.get_payload()) for p in message.walk() if p.get_content_type() == "text/x-shellscript"]
    assert len(scripts) == 2
    assert 'echo "NEURON_LOGICAL_NC_CONFIG=1" > /opt/aws/neuron/logical_nc_config\n' in scripts[0]
    assert scripts[1].startswith(own)


def test_no_user_data_without_settings() -> None:
    assert user_data() == ""
    with pytest.raises(ValueError, match="'5120M' is not an amount of memory"):
        user_data(huge_pages="5120M")


def test_the_script_raises_huge_pages_and_never_lowers_them(tmp_path: Path) -> None:
    """Run for real, with the kernel's files in a folder."""
    script = parts(user_data(huge_pages="5120Mi"))["text/x-shellscript"]
    proc, conf, bin_ = tmp_path / "nr_hugepages", tmp_path / "sysctl.d", tmp_path / "bin"
    conf.mkdir()
    bin_.mkdir()
    sysctl = bin_ / "sysctl"
    sysctl.write_text('#!/bin/sh\ncp "$2" "$SEEN"\n')
    sysctl.chmod(0o755)
    script = script.replace("/proc/sys/vm/nr_hugepages", str(proc)).replace("/etc/sysctl.d", str(conf))
    for there, expected in (("0", "vm.nr_hugepages = 2560\n"), ("2560", None), ("5128", None)):
        proc.write_text(f"{there}\n")
        seen = tmp_path / f"seen-{there}"
        run = subprocess.run(
            ["bash", "-c", script], env={"PATH": f"{bin_}:/usr/bin:/bin", "SEEN": str(seen)}, check=False
        )
        assert run.returncode == 0
        assert (seen.read_text() if seen.exists() else None) == expected


# --- charts ---


def test_charts_are_the_catalogues_and_reach_trainium_nodes() -> None:
    data = env(eks={"node_groups": [{"name": "a"}, {"name": "b", "instance_type": "trn1.2xlarge", "max_nodes": 1}]})
    found = {r.name: r for r in charts.releases(Installation.of(data))}
    pinned = data.catalog.eks.charts
    assert {n: r.version for n, r in found.items()} == {
        n: c.version for n, c in pinned.items() if n not in ("volcano", "neuron-claims")
    }
    assert found["neuron"].repository == "oci://public.ecr.aws/neuron/neuron-helm-chart"
    assert found["neuron"].values["neuronInstances"] == ["trn1.32xlarge", "trn1.2xlarge"]
    assert found["efa"].values == {
        "supportedInstanceLabels": {"keys": ["node.kubernetes.io/instance-type"], "values": ["trn1.32xlarge"]},
        "tolerations": [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}],
    }


def test_a_node_has_the_plug_in_or_the_driver() -> None:
    """Neuron's chart refuses both in one release. Without claims its values are as they were before there were claims."""
    plain, claims = {"name": "a"}, {"name": "b", "instance_type": "trn2.48xlarge", "devices": "claims"}

    def of(*groups: Any, **plugins: Any) -> dict[str, Any]:
        data = env(eks={"node_groups": list(groups), "plugins": plugins})
        return {r.name: r.values for r in charts.releases(Installation.of(data)) if r.chart == "neuron-helm-chart"}

    def rules(of: Any) -> list[Any]:
        [term] = of["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        return [(rule["key"], rule["operator"], rule["values"]) for rule in term["matchExpressions"]]

    both, types = of(plain, claims), ("node.kubernetes.io/instance-type", "In", ["trn1.32xlarge", "trn2.48xlarge"])
    assert rules(both["neuron"]["devicePlugin"])[-1] == (DEVICES_LABEL, "NotIn", ["claims"])
    assert rules(both["neuron-claims"]["draDriver"])[0] == types
    assert rules(both["neuron-claims"]["draDriver"])[-1] == (DEVICES_LABEL, "In", ["claims"])
    alone = of({"name": "b"}, devices="claims")
    assert alone["neuron"]["devicePlugin"] == {"enabled": False}
    for values in (*both.values(), *alone.values()):
        assert not (
            values["draDriver"]["enabled"] and (values["devicePlugin"]["enabled"] or values["scheduler"]["enabled"])
        )
        assert values["npd"]["enabled"] != values["draDriver"]["enabled"]  # the detector once on each node
        assert "namespaceOverride" not in values["draDriver"]  # the chart would make a namespace that is there
    assert list(of(plain)) == ["neuron"]
    assert of(plain)["neuron"]["devicePlugin"] == {"enabled": True}


def test_kueue_counts_claims_as_the_plug_ins_devices() -> None:
    """And asks for nodes whatever a job requests: it looks at containers alone, and a job of claims would start without nodes."""
    without, claims = (Installation.of(env(eks={"plugins": {"devices": way}})) for way in ("plugin", "claims"))

    def of(wanted: Installation) -> tuple[Any, Any]:
        [release] = [r for r in charts.releases(wanted) if r.name == "kueue"]
        [asks] = [o["spec"] for o in kueue.queues(wanted) if o["kind"] == "ProvisioningRequestConfig"]
        configured = json.loads(release.values["managerConfig"]["controllerManagerConfigYaml"])
        return configured.get("resources"), asks.get("managedResources")

    mapping = {"name": "aws.amazon.com/neuron", "deviceClassNames": ["neuron.aws.com"]}
    assert of(claims) == ({"deviceClassMappings": [mapping]}, None)
    assert of(without) == (None, ["aws.amazon.com/neuron"])
    [device] = {
        q["coveredResources"][0]
        for o in kueue.queues(claims)
        if o["kind"] == "ClusterQueue"
        for q in o["spec"]["resourceGroups"][:1]
    }
    assert device == mapping["name"]
    assert not [o for o in boundaries(without) if o["metadata"]["name"] == "trn-claims"]
    assert "resource.k8s.io" not in json.dumps([*manifests.access(without), *manifests.scaler_access(without)])


def with_volcano(**eks: Any) -> dict[str, charts.Release]:
    data = env(eks={"plugins": {"volcano": True}, **eks})
    return {release.name: release for release in charts.releases(Installation.of(data))}


def test_volcano_is_of_the_catalogues_version() -> None:
    version = settings.load().catalog.eks.charts["volcano"].version
    assert with_volcano()["volcano"].values["basic"]["image_tag_version"] == f"v{version}"


def test_volcano_admits_jobs_beyond_the_present_nodes() -> None:
    values = with_volcano()["volcano"].values
    tiers = YAML(typ="safe").load(values["custom"]["scheduler_config_override"])["tiers"]
    plugins = {p["name"]: p for tier in tiers for p in tier["plugins"]}
    assert "overcommit" not in plugins
    assert plugins["proportion"]["enableJobEnqueued"] is False
    assert {"gang", "predicates"} <= set(plugins)


def test_volcanos_admission_does_not_check_the_queues() -> None:
    """A webhook for queues rejects those that the stack applies before Volcano's server answers (volcano issue 3254)."""
    custom = with_volcano()["volcano"].values["custom"]
    on = custom["enabled_admissions"].split(",")
    assert on == ["/jobs/mutate", "/jobs/validate", "/podgroups/validate"]
    assert not [path for path in on if path.startswith("/queues")]
    # the local Kubernetes registers the same ones
    assert [path for path, *_ in volcano.ADMISSIONS] == on


def test_charts_by_plugins() -> None:
    off = {"neuron_scheduler": True, "node_problem_detector": False, "autoscaler": False}
    data = env(eks={"plugins": off, "node_groups": [{"instance_type": "trn1.2xlarge", "max_nodes": 1}]})
    found = charts.releases(Installation.of(data))
    assert [r.name for r in found] == ["neuron", "jobset", "kueue"]
    assert (found[0].values["scheduler"]["enabled"], found[0].values["npd"]["enabled"]) == (True, False)


def test_charts_and_images_of_a_mirror() -> None:
    ecr = "111122223333.dkr.ecr.us-east-1.amazonaws.com"
    mirror = {
        "charts": {"volcano": f"oci://{ecr}/charts/volcano"},
        "images": {"public.ecr.aws": f"{ecr}/public", "public.ecr.aws/neuron": f"{ecr}/n", "docker.io": f"{ecr}/hub"},
    }
    plain, mirrored = env(), env(eks={"mirror": mirror, "plugins": {"volcano": True}})
    found = {r.name: r for r in charts.releases(Installation.of(mirrored))}
    assert (found["volcano"].chart, found["volcano"].repository) == ("volcano", f"oci://{ecr}/charts/volcano")
    assert found["volcano"].values["basic"]["image_registry"] == f"{ecr}/hub"
    neuron = found["neuron"].values
    assert neuron["devicePlugin"] == {"enabled": True, "image": {"repository": f"{ecr}/n/neuron-device-plugin"}}
    assert neuron["scheduler"]["customScheduler"]["image"]["repository"].startswith(f"{ecr}/public/eks-distro/")
    assert "nodeProblemDetector" not in neuron["npd"]  # of a registry that the mirror does not name
    assert found["efa"] == {r.name: r for r in charts.releases(Installation.of(plain))}["efa"]
    exported = outputs.eks_outputs(mirrored, bucket="trn-bucket")
    assert exported["Image"][0].startswith(f"{ecr}/n/")
    assert exported["ShellImage"][0].startswith(f"{ecr}/public/amazonlinux/")
    assert access.ecr_repositories("aws", mirrored.eks.mirror.charts.values()) == [
        "arn:aws:ecr:us-east-1:111122223333:repository/charts/volcano"
    ]


# --- objects ---


@pytest.mark.parametrize("name", ["objects", "charts"])
def test_what_is_installed_as_parsed(name: str) -> None:
    """The default cluster's objects with both file systems, and all charts' values, each in a golden file: `TRN_WRITE_GOLDEN=1` renders
    them again."""
    import io
    import os

    plugins = {"volcano": True, "neuron_scheduler": True, "node_recovery": True}
    wanted, every = Installation.of(env(**BOTH)), Installation.of(env(eks={"plugins": plugins}))
    found = {
        "objects": [
            *manifests.namespaces(wanted), manifests.service_account(wanted), *manifests.access(wanted),
            *manifests.volumes(wanted, [EFS, FSX], FOLDERS), *manifests.queues(wanted), *kueue.queues(wanted),
            *network_policies(wanted), *boundaries(wanted),
        ],
        "charts": [{"chart": release.name, **release.values} for release in charts.releases(every)],
    }  # fmt: skip
    yaml, text = YAML(typ="safe", pure=True), io.StringIO()
    yaml.default_flow_style = False
    yaml.dump_all(json.loads(json.dumps(found[name])), text)
    golden = GOLDEN / f"{name}.yaml"
    if os.environ.get("TRN_WRITE_GOLDEN"):
        golden.write_text(text.getvalue())
    assert text.getvalue() == golden.read_text()


def test_the_objects_of_kueues_topology_are_valid() -> None:
    """docs/guides/jobs-on-kubernetes.md, "Near each other": for a node group and its taint, as the stack makes them."""
    objects = list(YAML(typ="safe").load_all(ROOT / "examples/kubernetes/near.yaml"))
    assert schemas.validate_all(objects) == []
    flavor = next(thing["spec"] for thing in objects if thing["kind"] == "ResourceFlavor")
    assert flavor["tolerations"] == [{"key": Catalog.load().eks.taint, "operator": "Exists", "effect": "NoSchedule"}]
    assert list(flavor["nodeLabels"]) == [GROUP_LABEL]


def test_volumes_and_claims_reference_each_other_and_delete_nothing() -> None:
    data = env(**BOTH, eks={"namespace": "speech"})
    found = manifests.volumes(Installation.of(data), [EFS, FSX], FOLDERS)
    volumes = [o for o in found if o["kind"] == "PersistentVolume"]
    wanted = [o for o in found if o["kind"] == "PersistentVolumeClaim"]
    assert [c["metadata"]["name"] for c in wanted] == manifests.claims([EFS, FSX]), "of its own folder"
    assert manifests.claims([replace(EFS, owned=False)]) == [f"efs-{EFS.id}"], "all of the files"
    for volume, claim in zip(volumes, wanted, strict=True):
        assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
        reference = volume["spec"]["claimRef"]
        assert (reference["namespace"], reference["name"]) == ("speech", claim["metadata"]["name"])
        assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"] == manifests.STORAGE_CLASS
    own = volumes[0]["spec"]
    assert own["csi"]["volumeHandle"] == f"{EFS.id}::{FOLDERS['speech']}", "its access point, never the file system"
    assert own["mountOptions"] == ["tls", "iam"], "the driver signs as the node, whose role may mount access points"
    assert volumes[1]["spec"]["csi"]["volumeAttributes"] == {"dnsname": FSX.dns_name, "mountname": FSX.mount_name}
    [kind] = [o for o in found if o["kind"] == "StorageClass"]
    assert kind["provisioner"] == "kubernetes.io/no-provisioner"


def test_a_file_system_that_grows_changes_no_claim() -> None:
    small, large = (Installation.of(env(storage={"efs": None, "fsx": {"capacity_gib": size}})) for size in (1200, 4800))
    assert manifests.volumes(small, [FSX], {}) == manifests.volumes(large, [FSX], {})


def test_teams_share_the_groups() -> None:
    """Quotas in nodes of 16 devices: what the teams leave is the jobs' own; all borrow up to their maximum."""
    teams = [
        {"namespace": "speech", "nodes": {"a": 6}},
        {"namespace": "vision", "nodes": {"a": 1}, "max_nodes": {"a": 3, "b": 0}},
    ]
    wanted = Installation.of(
        env(eks={"node_groups": [{"name": "a", "max_nodes": 8}, {"name": "b", "max_nodes": 2}], "queues": teams})
    )
    found = kueue.queues(wanted)
    quotas = {}
    for queue in (o for o in found if o["kind"] == "ClusterQueue"):
        device = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
        assert queue["spec"]["preemption"] == {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
        own, borrowed = int(device["nominalQuota"]) // 16, int(device["borrowingLimit"]) // 16
        quotas[queue["metadata"]["name"]] = (queue["spec"]["cohortName"], own, borrowed)
    assert quotas == {
        "a.training": ("a", 1, 7), "a.speech": ("a", 6, 2), "a.vision": ("a", 1, 2), "b.training": ("b", 2, 0), "b.speech": ("b", 0, 2),
    }  # fmt: skip
    local = {(o["metadata"]["namespace"], o["metadata"]["name"]): o["spec"]["clusterQueue"] for o in found if o["kind"] == "LocalQueue"}  # fmt: skip
    assert local == {
        ("training", "a"): "a.training", ("speech", "a"): "a.speech", ("vision", "a"): "a.vision",
        ("training", "b"): "b.training", ("speech", "b"): "b.speech",
    }  # fmt: skip


def test_without_the_autoscaler_no_queue_waits_for_it() -> None:
    found = kueue.queues(Installation.of(env(eks={"plugins": {"autoscaler": False}})))
    assert not [o for o in found if o["kind"] in ("AdmissionCheck", "ProvisioningRequestConfig")]
    assert all("admissionChecksStrategy" not in o.get("spec", {}) for o in found)


def test_each_group_has_a_queue_of_its_size() -> None:
    data = env(eks={"node_groups": [{"name": "a", "max_nodes": 3}, {"name": "b", "max_nodes": 1, "efa": "off"}]})
    found = {
        queue["metadata"]["name"]: queue["spec"]["capability"] for queue in manifests.queues(Installation.of(data))
    }
    assert found == {
        "a": {"cpu": "384", "memory": "1536Gi", "aws.amazon.com/neuron": "48", "vpc.amazonaws.com/efa": "24"},
        "b": {"cpu": "128", "memory": "512Gi", "aws.amazon.com/neuron": "16"},
    }
    assert [(f.queue, f.resource) for f in outputs.eks_fleets(data)] == [("a", "a"), ("b", "b")]
