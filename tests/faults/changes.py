"""A change of each resource type that our stacks make, which CloudFormation takes for an update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Properties = dict[str, Any]
Edit = Callable[[Properties], object]


def tag(p: Properties) -> None:
    p["Tags"] = [*p.get("Tags", []), {"Key": "faults", "Value": "1"}]


def file_system_tag(p: Properties) -> None:
    p["FileSystemTags"] = [*p.get("FileSystemTags", []), {"Key": "faults", "Value": "1"}]


def tag_map(p: Properties) -> None:
    p["Tags"] = {**p.get("Tags", {}), "faults": "1"}


def statement(name: str) -> Edit:
    """One permission more, in the policy document of that name."""

    def add(p: Properties) -> None:
        more = {"Effect": "Deny", "Action": "s3:DeleteBucket", "Resource": "*"}
        if name == "PolicyDocument" and "Bucket" in p:
            more["Principal"] = "*"
        p[name] = {**p[name], "Statement": [*p[name]["Statement"], more]}

    return add


def put(**values: Any) -> Edit:
    return lambda p: p.update(values)


def more_nodes(p: Properties) -> None:
    p["ClusterConfiguration"]["Scheduling"]["SlurmQueues"][0]["ComputeResources"][0]["MaxCount"] = 20


def larger_root(p: Properties) -> None:
    p["LaunchTemplateData"] = {**p["LaunchTemplateData"], "EbsOptimized": True}


SLURM: dict[str, Edit] = {
    "AWS::CloudWatch::Dashboard": put(DashboardBody='{"widgets": []}'),
    "AWS::CloudFormation::Stack": put(TimeoutInMinutes=20),
    "AWS::EC2::EIP": tag,
    "AWS::EC2::FlowLog": tag,
    "AWS::EC2::InternetGateway": tag,
    "AWS::EC2::KeyPair": tag,
    "AWS::EC2::NatGateway": tag,
    "AWS::EC2::PrefixList": lambda p: p["Entries"].append({"Cidr": "192.0.2.0/24"}),
    "AWS::EC2::Route": put(DestinationCidrBlock="192.0.2.0/24"),
    "AWS::EC2::RouteTable": tag,
    "AWS::EC2::SecurityGroup": tag,
    "AWS::EC2::SecurityGroupEgress": put(FromPort=7, ToPort=7),
    "AWS::EC2::SecurityGroupIngress": put(FromPort=7, ToPort=7),
    "AWS::EC2::Subnet": tag,
    "AWS::EC2::SubnetRouteTableAssociation": put(RouteTableId="rtb-0123456789abcdef0"),
    "AWS::EC2::VPC": tag,
    "AWS::EC2::VPCEndpoint": tag,
    "AWS::EC2::VPCGatewayAttachment": put(VpnGatewayId="vgw-0123456789abcdef0"),
    "AWS::EC2::VPCPeeringConnection": tag,
    "AWS::ECR::Repository": tag,
    "AWS::EFS::FileSystem": file_system_tag,
    "AWS::EFS::MountTarget": put(IpAddress="10.0.240.77"),
    "AWS::FSx::DataRepositoryAssociation": tag,
    "AWS::FSx::FileSystem": tag,
    "AWS::IAM::ManagedPolicy": statement("PolicyDocument"),
    "AWS::IAM::Role": put(Description="faults"),
    "AWS::KMS::Key": put(Description="faults"),
    "AWS::Lambda::Function": put(Description="faults"),
    "AWS::Logs::LogGroup": put(RetentionInDays=90),
    "AWS::S3::Bucket": tag,
    "AWS::S3::BucketPolicy": statement("PolicyDocument"),
    "AWS::SQS::Queue": put(MessageRetentionPeriod=86400),
    "AWS::SQS::QueuePolicy": statement("PolicyDocument"),
    "AWS::SSM::Parameter": put(Value="faults"),
    "Custom::PclusterCluster": more_nodes,
    "Custom::TrnEmptiedBucket": put(Note="faults"),
    "Custom::TrnClusterName": put(DeleteLogs="no"),
    "Custom::TrnNodeScripts": put(Note="faults"),
}
EKS: dict[str, Edit] = {
    **{k: v for k, v in SLURM.items() if k not in (
        "AWS::CloudFormation::Stack", "AWS::EC2::KeyPair", "AWS::EC2::PrefixList",
        "AWS::SSM::Parameter", "Custom::PclusterCluster", "Custom::TrnClusterName",
        "Custom::TrnNodeScripts",
    )},
    "AWS::CodeBuild::Project": put(Description="faults"),
    "AWS::EC2::Instance": tag,
    "AWS::CloudWatch::Alarm": put(AlarmDescription="faults"),
    "AWS::EC2::LaunchTemplate": larger_root,
    "AWS::EC2::PlacementGroup": tag,
    "AWS::EKS::AccessEntry": tag,
    "AWS::EKS::Addon": tag,
    "AWS::EKS::Cluster": put(Logging={"ClusterLogging": {"EnabledTypes": [{"Type": "api"}]}}),
    "AWS::EKS::Nodegroup": lambda p: p.update(Labels={**p.get("Labels", {}), "faults": "1"}),
    "AWS::EKS::PodIdentityAssociation": tag,
    "AWS::Events::Rule": put(Description="faults"),
    "AWS::Lambda::Permission": put(SourceAccount="111122223333"),
    "AWS::IAM::InstanceProfile": put(Path="/faults/"),
    "AWS::Lambda::LayerVersion": put(Description="faults"),
    "Custom::AWSCDK-EKS-HelmChart": put(Timeout="300s"),
    "Custom::AWSCDK-EKS-KubernetesResource": put(PruneLabel="faults"),
    "Custom::TrnNodeGroupSize": put(Nodes="1"),
}  # fmt: skip
PCS: dict[str, Edit] = {
    **{k: v for k, v in SLURM.items() if k not in (
        "AWS::CloudFormation::Stack", "AWS::EC2::KeyPair", "AWS::EC2::PrefixList", "Custom::PclusterCluster", "Custom::TrnClusterName",
    )},
    **{k: EKS[k] for k in ("AWS::EC2::LaunchTemplate", "AWS::EC2::PlacementGroup", "AWS::IAM::InstanceProfile")},
    "AWS::PCS::Cluster": lambda p: p["SlurmConfiguration"].update(ScaleDownIdleTimeInSeconds=900),
    "AWS::PCS::ComputeNodeGroup": lambda p: p["ScalingConfiguration"].update(MaxInstanceCount=p["ScalingConfiguration"]["MaxInstanceCount"] + 1),
    "AWS::PCS::Queue": lambda p: p["SlurmConfiguration"]["SlurmCustomSettings"].append({"ParameterName": "MaxTime", "ParameterValue": "60"}),
}  # fmt: skip
NEVER_DELETED = {
    # They go with their cluster; uninstalling them first takes an API server that answers, and can hang for an hour.
    "Custom::AWSCDK-EKS-HelmChart",
    "Custom::AWSCDK-EKS-KubernetesResource",
}
ONLY_EKS = sorted(EKS.keys() - SLURM.keys())
ONLY_PCS = sorted(PCS.keys() - SLURM.keys() - EKS.keys())
