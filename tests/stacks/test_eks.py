"""`TrnEksStack` of every environment: the traps that it must not fall into."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.cdk import needs, only, properties, resources
from tests.stacks.synthesis import EKS, environment, groups
from tests.support import swept
from trainium_cdk import outputs, settings
from trainium_cdk.cdk.eks.charts import CONTROLLERS
from trainium_cdk.cdk.helpers.launch_templates import interfaces
from trainium_cdk.description.outputs import GROUP_LABEL
from trainium_cdk.description.outputs.eks import DEVICES_LABEL

SHORT = ("default", "eks/all-settings", "eks/trn2-capacity-block", "eks/existing-vpc", "eks/claims")


@pytest.fixture(params=swept(EKS.names, *SHORT))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# --- the control plane ---


def test_the_control_plane_is_closed(name: str) -> None:
    eks = environment(name).eks
    cluster = only(EKS.template(name), "EKS::Cluster")
    vpc = cluster["ResourcesVpcConfig"]
    assert vpc["EndpointPrivateAccess"] is True
    assert vpc["EndpointPublicAccess"] is (eks.endpoint == "public")
    assert vpc.get("PublicAccessCidrs", []) == list(eks.public_cidrs)
    assert len(vpc["SubnetIds"]) >= 2
    assert cluster["AccessConfig"] == {
        "AuthenticationMode": "API",
        "BootstrapClusterCreatorAdminPermissions": False,
    }
    [encryption] = cluster["EncryptionConfig"]
    assert encryption["Resources"] == ["secrets"]
    assert only(EKS.template(name), "KMS::Key")["EnableKeyRotation"] is True
    kinds = {t["Type"] for t in cluster["Logging"]["ClusterLogging"]["EnabledTypes"]}
    assert kinds == {"api", "audit", "authenticator", "controllerManager", "scheduler"}


def test_the_support_setting() -> None:
    assert only(EKS.template("eks/all-settings"), "EKS::Cluster")["UpgradePolicy"] == {"SupportType": "STANDARD"}
    assert "UpgradePolicy" not in only(EKS.template("default"), "EKS::Cluster")


def policies_of(name: str) -> dict[str, dict[str, Any]]:
    found = EKS.template(name)
    return {**resources(found, "IAM::Policy"), **resources(found, "IAM::ManagedPolicy")}


def test_charts_of_the_accounts_own_registry_may_be_pulled() -> None:
    policies = policies_of("eks/no-internet")
    text = json.dumps([r for k, r in policies.items() if "ClusterKubectl" in k])
    for chart in ("neuron-helm-chart", "aws-efa-k8s-device-plugin", "jobset", "kueue"):
        assert f":ecr:us-east-2:111122223333:repository/charts/{chart}" in text
    default = policies_of("default")
    assert ":repository/" not in json.dumps([r for k, r in default.items() if "ClusterKubectl" in k])


def test_the_first_pull_through_a_cache_may_create_its_repository() -> None:
    """Of nodes below each prefix of `mirror.images`, of the function that installs charts for each chart; nowhere else."""

    def may_create(name: str) -> dict[str, str]:
        policies = policies_of(name)
        return {who: text for who, policy in policies.items() if "ecr:CreateRepository" in (text := json.dumps(policy))}

    assert may_create("default") == {}
    [(kubectl, charts), (nodes, images)] = sorted(may_create("eks/no-internet").items())
    assert ("Kubectl" in kubectl, nodes.startswith("Nodes")) == (True, True)
    for prefix in ("ecr-public", "kubernetes", "docker-hub"):
        assert f":ecr:us-east-2:111122223333:repository/{prefix}/*" in images
    assert ":repository/charts/kueue" in charts
    assert "602401143452" not in images, "a registry without a prefix is no cache of the account"
    assert "ecr:BatchImportUpstreamImage" in images


def test_the_control_plane_waits_for_no_gateway_and_nodes_do(name: str) -> None:
    [cluster] = resources(EKS.template(name), "EKS::Cluster")
    before = needs(EKS.template(name), cluster)
    slow = {
        "AWS::EC2::NatGateway",
        "AWS::EC2::Route",
        "AWS::EFS::FileSystem",
        "AWS::FSx::FileSystem",
        "AWS::EC2::VPCEndpoint",
    }
    kinds = EKS.document(name)["Resources"]
    assert not {kinds[k]["Type"] for k in before} & slow
    ways_out = {k for k in kinds if kinds[k]["Type"] in slow and not k.startswith("NetworkPeering")}
    for group in groups(name).values():
        assert needs(EKS.template(name), group["Id"]) >= ways_out, group["Id"]


def test_addons_come_in_the_right_order(name: str) -> None:
    env = environment(name)
    addons = {a["Properties"]["AddonName"]: key for key, a in resources(EKS.template(name), "EKS::Addon").items()}
    kinds = {"fsx": env.storage.fsx, "efs": env.storage.efs}
    assert set(addons) == {
        "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns",
        *(f"aws-{kind}-csi-driver" for kind, there in kinds.items() if there),
        *(["eks-node-monitoring-agent"] if env.eks.plugins.node_monitoring else []),
        *(["amazon-cloudwatch-observability"] if env.eks.observability else []),
    }  # fmt: skip
    early = {addons[n] for n in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")}
    system = groups(name)["system"]["Id"]
    for group in groups(name).values():
        assert needs(EKS.template(name), group["Id"]) >= early
    for addon, key in addons.items():
        assert (system in needs(EKS.template(name), key)) is (key not in early), addon
        facts = env.catalog.eks.addons[addon]
        version = env.eks.addon_versions.get(addon, facts.versions.get(env.kubernetes_version))
        found = EKS.document(name)["Resources"][key]["Properties"]
        assert found.get("AddonVersion") == version
        accounts = [p["ServiceAccount"] for p in found.get("PodIdentityAssociations", [])]
        assert accounts == ([facts.service_account] if facts.service_account else [])


def test_observability_writes_to_log_groups_of_the_stack() -> None:
    found = {
        group["LogGroupName"]: group
        for group in properties(EKS.template("eks/all-settings"), "Logs::LogGroup")
        if "containerinsights" in str(group.get("LogGroupName"))
    }
    kinds = ("application", "dataplane", "host", "performance")
    assert set(found) == {f"/aws/containerinsights/Speech_Lab/{kind}" for kind in kinds}
    assert {group["RetentionInDays"] for group in found.values()} == {400}
    [addon] = [a for a in properties(EKS.template("eks/all-settings"), "EKS::Addon") if "cloudwatch" in a["AddonName"]]
    assert json.loads(addon["ConfigurationValues"]) == {
        "containerLogs": {"enabled": True}, "containerInsights": {"enabled": True}, "neuronMonitor": {"enabled": True},
        "applicationSignals": {"enabled": False}, "dcgmExporter": {"enabled": False},
    }  # fmt: skip
    assert not [a for a in properties(EKS.template("default"), "EKS::Addon") if "cloudwatch" in a["AddonName"]]


# --- nodes ---


def test_trainium_groups_are_valid_for_eks(name: str) -> None:
    """The CDK's Nodegroup would have refused the type, or brought an image that is not Neuron's, or a plug-in that never starts."""
    env = environment(name)
    for settings_of in env.eks.node_groups:
        group = groups(name)[settings_of.name]
        assert group["Data"]["InstanceType"] == settings_of.instance_type
        assert "InstanceTypes" not in group
        assert group.get("AmiType") == (None if settings_of.custom_ami else "AL2023_x86_64_NEURON")
        assert group.get("Version") == (None if settings_of.custom_ami else env.kubernetes_version)
        image = None if settings_of.custom_ami else env.node_image
        assert group.get("ReleaseVersion") == (image.version if image else None)
        script = f"wanted={env.node_driver}\n"
        data = group["Data"].get("UserData", {}).get("Fn::Base64", "")
        assert (script in data) is bool(env.node_driver and not settings_of.custom_ami)
        assert group["Taints"] == [{"Key": "aws.amazon.com/neuron", "Value": "true", "Effect": "NO_SCHEDULE"}]
        assert len(group["Subnets"]) == 1
        kinds = {"on-demand": "ON_DEMAND", "spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
        assert group["CapacityType"] == kinds[settings_of.capacity_type]
    assert "NeuronDevicePlugin" not in json.dumps(EKS.document(name))


def test_interfaces_are_of_the_layout(name: str) -> None:
    env = environment(name)
    for settings_of in env.eks.node_groups:
        data = groups(name)[settings_of.name]["Data"]
        kind = env.catalog.instance(settings_of.instance_type)
        if settings_of.efa == "off" or not kind.efa_interfaces:
            assert "NetworkInterfaces" not in data
            assert len(data["SecurityGroupIds"]) == 2
            continue
        found = data["NetworkInterfaces"]
        expected = interfaces(kind, settings_of.efa_layout)
        assert [(i["NetworkCardIndex"], i["DeviceIndex"], i["InterfaceType"]) for i in found] == [
            (i.card, i.device, i.kind) for i in expected
        ]
        efa_group = {
            "Fn::GetAtt": [
                next(g for g in resources(EKS.template(name), "EC2::SecurityGroup") if g.startswith("Efa")),
                "GroupId",
            ]
        }
        for each in found:
            # multi-card instances cannot have it, and a node group's subnet is not set in the template
            assert not {"AssociatePublicIpAddress", "SubnetId"} & set(each)
            assert efa_group in each["Groups"]
            assert {"Fn::GetAtt": [_cluster_id(name), "ClusterSecurityGroupId"]} in each["Groups"]
        assert "SecurityGroupIds" not in data


def test_reserved_capacity_and_placement_groups_never_meet(name: str) -> None:
    for settings_of in environment(name).eks.node_groups:
        data = groups(name)[settings_of.name]["Data"]
        assert not ("Placement" in data and "CapacityReservationSpecification" in data)
        if settings_of.reservation:
            target = data["CapacityReservationSpecification"]["CapacityReservationTarget"]
            assert target == {"CapacityReservationId": settings_of.reservation}
        market = data.get("InstanceMarketOptions")
        assert market == ({"MarketType": "capacity-block"} if settings_of.capacity_type == "capacity-block" else None)


def test_nodes_are_hardened(name: str) -> None:
    for group in groups(name).values():
        data = group["Data"]
        assert data["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
        [disk] = data["BlockDeviceMappings"]
        assert (disk["Ebs"]["Encrypted"], disk["Ebs"]["VolumeType"]) == (True, "gp3")
        tags = {t["Key"]: t["Value"] for t in data["TagSpecifications"][0]["Tags"]}
        assert tags.items() >= environment(name).tags.items()


def test_a_deployment_does_not_undo_a_scaling(name: str) -> None:
    """EKS requires the desired size for a new group, and applies it again whenever another size changes: it is looked up."""
    env = environment(name)
    wanted: dict[str, Any] = {g.name: g for g in env.eks.node_groups} | {"system": env.eks.system}
    sizes = EKS.template(name).find_resources("Custom::TrnNodeGroupSize")
    everything = EKS.template(name).to_json()["Resources"]
    ids = {
        g["Properties"]["Labels"][GROUP_LABEL]: i for i, g in resources(EKS.template(name), "EKS::Nodegroup").items()
    }
    for key, group in groups(name).items():
        scaling = group["ScalingConfig"]
        attribute = scaling["DesiredSize"]["Fn::GetAtt"]
        assert attribute[1] == "Nodes"
        found = sizes[attribute[0]]["Properties"]
        least, most = wanted[key].min_nodes, wanted[key].max_nodes
        assert (scaling["MinSize"], scaling["MaxSize"]) == (least, most)
        assert (found["Group"], found["Nodes"], found["Min"], found["Max"]) == (key, wanted[key].nodes, least, most)
        assert found["ServiceTimeout"] == "300"
        before = {i for i in needs(EKS.template(name), attribute[0]) if everything[i]["Type"] == "AWS::EKS::Addon"}
        if key == "system":  # at first there is no cluster to query, and it must not wait for one
            assert _cluster_id(name) not in needs(EKS.template(name), attribute[0])
        else:  # the scaler may change it while the add-ons are updated
            ready = {i for i in needs(EKS.template(name), ids[key]) if everything[i]["Type"] == "AWS::EKS::Addon"}
            assert before == ready != set()


def test_the_scaler_changes_its_groups_sizes_and_nothing_else(name: str) -> None:
    rules = resources(EKS.template(name), "Events::Rule")
    env, found = environment(name), {id: rule for id, rule in rules.items() if id.startswith("Scaler")}
    if not env.eks.plugins.autoscaler:
        assert found == {}
        return
    [function] = (
        f for f in properties(EKS.template(name), "Lambda::Function") if "SETTINGS" in str(f.get("Environment"))
    )
    settings_of = json.dumps(function["Environment"]["Variables"]["SETTINGS"])
    for fleet in outputs.eks_fleets(env):
        assert f'\\"{fleet.resource}\\":\\"' in settings_of
        assert {"Fn::GetAtt": [groups(name)[fleet.resource]["Id"], "NodegroupName"]} in _parts(function)
    role = EKS.document(name)["Resources"][function["Role"]["Fn::GetAtt"][0]]["Properties"]
    policies = [EKS.document(name)["Resources"][arn["Ref"]]["Properties"] for arn in role["ManagedPolicyArns"]]
    statements = [s for policy in policies for s in policy["PolicyDocument"]["Statement"]]
    [changes] = (s for s in statements if "autoscaling:SetDesiredCapacity" in s["Action"])
    assert changes["Action"] == [f"autoscaling:{action}" for action in (
        "CreateOrUpdateTags", "DeleteTags", "SetDesiredCapacity", "SetInstanceProtection", "TerminateInstanceInAutoScalingGroup",
    )]  # fmt: skip
    assert changes["Condition"] == {"StringEquals": {"aws:ResourceTag/eks:cluster-name": env.eks_cluster_name}}
    resources_of = changes["Resource"] if isinstance(changes["Resource"], list) else [changes["Resource"]]
    assert len(resources_of) == len(env.eks.node_groups)
    assert groups(name)["system"]["Id"] not in json.dumps(changes)
    found = resources(EKS.template(name), "CloudWatch::Alarm")
    [alarm] = [r["Properties"] for id, r in found.items() if id.startswith("Scaler")]
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Threshold"]) == ("Errors", "Average", 1)
    assert alarm["TreatMissingData"] == "breaching"
    topic = env.observability and env.observability.alarm_topic
    assert alarm.get("AlarmActions") == ([topic] if topic else None)
    # Lambda's own retries, not EventBridge's, would run it beside its next run
    [invoked] = properties(EKS.template(name), "Lambda::EventInvokeConfig")
    assert EKS.document(name)["Resources"][invoked["FunctionName"]["Ref"]]["Properties"] == function
    assert (invoked["MaximumRetryAttempts"], invoked["MaximumEventAgeInSeconds"]) == (0, 60)


def _parts(function: dict[str, Any]) -> list[Any]:
    return list(function["Environment"]["Variables"]["SETTINGS"]["Fn::Join"][1])


def test_user_data_by_node_settings() -> None:
    decoded = _user_data("eks/trn1-spot", "spot")
    assert "pages=2560" in decoded
    assert "dnf install -y lustre-client" in decoded
    assert "strategy: RAID0" in decoded
    assert "apiServerEndpoint" not in decoded
    assert "lustre" not in _user_data("default", "trn")
    own = _user_data("eks/all-settings", "own-image")
    assert "touch /etc/lab" in own
    assert "NEURON_LOGICAL_NC_CONFIG=1" in _user_data("eks/no-internet", "trn")
    assert "apiServerEndpoint: <ClusterEB0386A7.Endpoint>" in own
    assert "cidr: 10.200.0.0/20" in own
    assert "RLIMIT_MEMLOCK" in decoded
    assert "UserData" not in groups("eks/public")["trn"]["Data"]
    assert "UserData" not in groups("default")["system"]["Data"]
    assert "lustre-client" in _user_data("eks/trn1-spot", "system")


# --- what is installed ---


def test_nodes_of_claims_have_the_label_of_their_driver() -> None:
    labels = {name: group["Labels"] for name, group in groups("eks/claims").items()}
    assert {name: found.get(DEVICES_LABEL) for name, found in labels.items()} == {
        "trn": "claims", "parts": "claims", "old": None, "system": None,
    }  # fmt: skip


def test_helm_ends_before_lambda_and_waits_for_controllers_alone(name: str) -> None:
    env = environment(name)
    charts = {
        c["Properties"]["Release"]: c
        for c in EKS.template(name).find_resources("Custom::AWSCDK-EKS-HelmChart").values()
    }
    efa = any(f.efa for f in outputs.eks_fleets(env))
    assert set(charts) == {
        "neuron",
        *(["neuron-claims"] if any(f.claims for f in outputs.eks_fleets(env)) else []),
        *(["efa"] if efa else []),
        "jobset",
        "kueue",
        *(["volcano"] if env.eks.plugins.volcano else []),
    }
    nodes = {group["Id"] for group in groups(name).values()}
    for release, chart in charts.items():
        found = chart["Properties"]
        assert int(found["Timeout"].removesuffix("s")) < 900
        assert ("Wait" in found) is (release in CONTROLLERS)
        assert (
            found["Version"] == env.catalog.eks.charts[release].version
        )  # an OCI chart without one crashes the handler
        assert chart["DeletionPolicy"] == "Retain"
    system = {groups(name)["system"]["Id"]}
    for key, chart in EKS.template(name).find_resources("Custom::AWSCDK-EKS-HelmChart").items():
        expected = system if chart["Properties"]["Release"] in CONTROLLERS else set()
        assert nodes & needs(EKS.template(name), key) == expected


def test_queues_are_applied_after_what_serves_them(name: str) -> None:
    applied = EKS.template(name).find_resources("Custom::AWSCDK-EKS-KubernetesResource")
    charts = EKS.template(name).find_resources("Custom::AWSCDK-EKS-HelmChart")
    release = {chart["Properties"]["Release"]: key for key, chart in charts.items()}
    texts = {key: json.dumps(item["Properties"]).replace("\\", "") for key, item in applied.items()}
    for kind, chart in (("ClusterQueue", "kueue"), ("Queue", "volcano")):
        queues = [key for key, text in texts.items() if f'"kind":"{kind}"' in text]
        assert len(queues) == (chart in release)
        assert all(release[chart] in needs(EKS.template(name), key) for key in queues)
    [base] = [key for key, text in texts.items() if '"kind":"CustomResourceDefinition"' in text]
    assert base in needs(EKS.template(name), release["kueue"]), (
        "Kueue looks for ProvisioningRequests only when it starts"
    )


def test_kubectl_has_memory_and_leaves_no_logs(name: str) -> None:
    logs = set(resources(EKS.template(name), "Logs::LogGroup"))
    for key, function in resources(EKS.template(name), "Lambda::Function").items():
        found = function["Properties"]
        assert found["LoggingConfig"]["LogGroup"]["Ref"] in logs, key
        role = EKS.document(name)["Resources"][found["Role"]["Fn::GetAtt"][0]]["Properties"]
        # none of AWS's own, which allow logs:CreateLogGroup; the stack's for network interfaces, where the function is in the VPC
        attached = [arn["Ref"] for arn in role.get("ManagedPolicyArns", [])]
        assert sum(ref.startswith("TrnFunctionInterfaces") for ref in attached) == ("VpcConfig" in found), key
    assert "logs:CreateLogGroup" not in json.dumps(policies_of(name))
    [handler] = (
        f
        for f in properties(EKS.template(name), "Lambda::Function")
        if "kubectl resource provider" in f.get("Description", "")
    )
    assert handler["MemorySize"] >= 1024
    # its network interfaces are in a group of ours: EKS could not delete its own while they exist
    assert "ClusterSecurityGroupId" not in json.dumps(handler["VpcConfig"])
    assert all("RetentionInDays" in group for group in properties(EKS.template(name), "Logs::LogGroup"))


def test_policies_name_what_they_allow(name: str) -> None:
    """Actions are named, and so are resources, but for those that AWS takes none for, and those that AWS names: in one region."""
    free = re.compile(
        r"ecr(-public)?:GetAuthorizationToken|sts:GetServiceBearerToken|cloudwatch:PutMetricData|\w+:Describe\w+"
        r"|(ssm|ec2)messages:"
    )
    regional = re.compile(r"ec2:\w+(NetworkInterface|PrivateIpAddresses)$|ssm:UpdateInstanceInformation$")
    for policy in [p["Properties"]["PolicyDocument"] for p in policies_of(name).values()]:
        for statement in policy["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert not [a for a in actions if a.endswith(":*") or a == "*"], statement
            if statement["Resource"] == "*" and statement["Effect"] == "Allow":
                limited = [a for a in actions if not free.match(a)]
                assert not [a for a in limited if not regional.match(a)], statement
                assert not limited or list(statement["Condition"]["StringEquals"]) == ["aws:RequestedRegion"]


def test_pods_identities_are_of_this_cluster_alone(name: str) -> None:
    roles = [
        r
        for r in properties(EKS.template(name), "IAM::Role")
        if "pods.eks" in json.dumps(r["AssumeRolePolicyDocument"])
    ]
    assert len(roles) >= 3
    for role in roles:
        for statement in role["AssumeRolePolicyDocument"]["Statement"]:
            assert {"StringEquals", "ArnEquals"} <= set(statement["Condition"])
            assert f":cluster/{environment(name).eks_cluster_name}" in json.dumps(statement["Condition"]["ArnEquals"])


def test_access_is_limited_to_the_named_principals(name: str) -> None:
    env = environment(name)
    entries = properties(EKS.template(name), "EKS::AccessEntry")
    given = {e["PrincipalArn"]: e for e in entries if isinstance(e["PrincipalArn"], str)}
    words = {"cluster-admin": "ClusterAdmin", "admin": "Admin", "edit": "Edit", "view": "View"}
    groups_of = {"admin": ["trainium:edit"], "edit": ["trainium:edit"], "view": ["trainium:view"], "cluster-admin": []}
    scopes: dict[str, dict[str, list[str]]] = {}
    groups: dict[str, list[str]] = {}
    for access in env.eks.access:  # a principal may stand there several times, and for several namespaces
        whole = access.policy == "cluster-admin"
        policies = scopes.setdefault(access.principal, {}).setdefault(words[access.policy], [])
        policies += [] if whole else access.namespace or [env.eks.namespace]
        own = [f"trainium:edit:{team}" for team in access.namespace or () if team != env.eks.namespace]
        known = groups.setdefault(access.principal, [])
        more = (
            own if access.namespace and env.eks.namespace not in access.namespace else [*groups_of[access.policy], *own]
        )
        known += [group for group in more if group not in known]
    assert set(given) == set(scopes)
    for principal, policies in scopes.items():
        found = {
            re.sub(".*AmazonEKS(.*)Policy.*", r"\1", json.dumps(one["PolicyArn"])): one["AccessScope"]
            for one in given[principal]["AccessPolicies"]
        }
        assert found == {
            policy: {"Type": "namespace", "Namespaces": names} if names else {"Type": "cluster"}
            for policy, names in policies.items()
        }
        rights = given[principal].get("KubernetesGroups", [])
        assert rights == groups[principal], "rights in one namespace are none in another"
    # and ours: the function that deploys, the role that `trn` takes, and those without a policy of EKS: what removes objects, the scaler
    scales = env.eks.plugins.autoscaler
    assert len(entries) == len(scopes) + 3 + scales
    functions = [e for e in entries if e.get("KubernetesGroups") in (["trainium:scaler"], ["trainium:objects"])]
    assert [e.get("AccessPolicies") for e in functions] == [None] * (1 + scales)


def test_the_bastion_host_has_no_inbound_rule() -> None:
    found = only(EKS.template("default"), "EC2::Instance")
    assert "KeyName" not in found
    [interface] = found["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is False
    [group] = interface["GroupSet"]
    rules = EKS.document("default")["Resources"][group["Fn::GetAtt"][0]]["Properties"]
    assert "SecurityGroupIngress" not in rules
    assert not [r for r in properties(EKS.template("default"), "EC2::SecurityGroupIngress") if r["GroupId"] == group]
    for without in ("eks/no-bastion-host", "eks/public"):
        assert resources(EKS.template(without), "EC2::Instance") == {}


def test_image_builds_put_no_user_input_into_commands() -> None:
    found = only(EKS.template("default"), "CodeBuild::Project")
    assert found["Environment"]["PrivilegedMode"] is True
    assert found["Environment"]["Type"] == "LINUX_CONTAINER"
    assert found["Source"]["Type"] == "S3"
    build = json.loads(found["Source"]["BuildSpec"])
    assert '"$REPOSITORY_URI:$IMAGE_TAG"' in json.dumps(build).replace('\\"', '"')
    assert resources(EKS.template("eks/trn1-2xlarge"), "CodeBuild::Project") == {}


def test_keep_keeps_data_and_delete_leaves_nothing() -> None:
    kept = EKS.document("eks/keep")["Resources"]
    for kind in ("AWS::EFS::FileSystem", "AWS::FSx::FileSystem", "AWS::S3::Bucket", "AWS::ECR::Repository"):
        assert {r["DeletionPolicy"] for r in kept.values() if r["Type"] == kind} == {"Retain"}, kind
    resources_by_default = EKS.document("default")["Resources"].values()
    stays = {r["Type"] for r in resources_by_default if r.get("DeletionPolicy", "Delete") != "Delete"}
    # objects in the cluster are deleted with the cluster
    assert stays == {"Custom::AWSCDK-EKS-HelmChart", "Custom::AWSCDK-EKS-KubernetesResource"}


def test_another_capacity_is_another_size_and_nothing_else() -> None:
    """Growing the fleet replaces nothing: not the cluster, not a node group, no file system."""
    small, large = (
        EKS.template_of(settings.validate({"eks": {"node_groups": [{"max_nodes": most}]}})).to_json()["Resources"]
        for most in (2, 16)
    )
    assert set(small) == set(large)
    changed = {small[key]["Type"] for key in small if small[key] != large[key]}
    sizes = {"AWS::EKS::Nodegroup", "Custom::TrnNodeGroupSize", "Custom::AWSCDK-EKS-KubernetesResource"}
    assert changed == {*sizes, "AWS::IAM::ManagedPolicy"}, "the scaler may reserve as many instances"


def _cluster_id(name: str) -> str:
    [found] = resources(EKS.template(name), "EKS::Cluster")
    return found


def _user_data(name: str, group: str) -> str:
    """The user data as text, with `<Resource.Attribute>` for what CloudFormation fills in."""
    found = groups(name)[group]["Data"]["UserData"]["Fn::Base64"]
    if isinstance(found, str):
        return found
    parts = found["Fn::Join"][1]
    return "".join(p if isinstance(p, str) else f"<{'.'.join(p.get('Fn::GetAtt', [p.get('Ref')]))}>" for p in parts)
