"""EKS environments that must be refused: (YAML, key, part of the message), as in `bad_environments`."""

from __future__ import annotations

MIRROR = """
eks:
  bastion_host: null
  mirror:
    charts: {neuron: oci://r.example.com/neuron, efa: oci://r.example.com/efa, jobset: oci://r.example.com/jobset, kueue: oci://r.example.com/kueue}
    images:
      public.ecr.aws: r.example.com/public
      registry.k8s.io: r.example.com/k8s
      docker.io: r.example.com/hub
      602401143452.dkr.ecr.us-west-2.amazonaws.com: r.example.com/eks
"""
CLUSTER = [
    (
        "eks: {version: '1.29'}  # <-",
        "eks.version",
        "EKS does not create clusters of this version any more. Fix: write 1.33, 1.34 or 1.35",
    ),
    (
        """
network: {zone_ids: [use1-az6]}  # <-
eks: {}
""",
        "network.zone_ids",
        "EKS requires subnets in at least two zones. Fix: add a second zone after the nodes' zone, for "
        "example use1-az1, use1-az2",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 172.31.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]  # <-
eks: {}
""",
        "network.existing.private_subnets",
        "describe a private subnet in another zone",
    ),
    (
        """
network: {zone_ids: [use1-az6, use1-az3]}  # <-
eks: {}
""",
        "network.zone_ids",
        "EKS does not support a control plane in this zone. Fix: write use1-az1",
    ),
    (
        """
network: {nat: none}  # <-
eks: {}
""",
        "network.nat",
        "charts neuron, efa, jobset and kueue and images of 602401143452.dkr.ecr.us-west-2.amazonaws.com, public.ecr.aws and "
        "registry.k8s.io cannot be pulled without access to the internet. Fix: set copies of them under eks.mirror.charts and "
        "eks.mirror.images, or write nat: one",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 172.31.0.0/16
    internet: false  # <-
    private_subnets:
      - {id: subnet-0123456789abcdef0, zone_id: use1-az6}
      - {id: subnet-0123456789abcdef1, zone_id: use1-az5}
eks: {mirror: {images: {public.ecr.aws: r.example.com/public, docker.io: r.example.com/hub}}}
""",
        "network.existing.internet",
        "charts neuron, efa, jobset and kueue and images of 602401143452.dkr.ecr.us-west-2.amazonaws.com and "
        "registry.k8s.io cannot be pulled without access to the internet. Fix: set copies of them under "
        "eks.mirror.charts and eks.mirror.images, or write internet: true",
    ),
    (
        f"network: {{nat: none, interface_endpoints: [ec2, ecr.api, ecr.dkr, eks, logs, sts, lambda]}}  # <-\n{MIRROR}",
        "network.interface_endpoints",
        "without a NAT gateway the cluster cannot reach autoscaling and eks-auth. Fix: add autoscaling and eks-auth",
    ),
    (
        "eks: {version: '1.33', support: standard}  # <-",
        "eks.support",
        "standard support of Kubernetes 1.33 ended on 2026-07-29: EKS only creates clusters of it with "
        "extended support. Fix: write support: extended, or version: '1.35'",
    ),
    (
        "eks: {node_groups: [{lnc: 2}]}  # <-",
        "eks.node_groups[0].lnc",
        "trn1.32xlarge supports LNC 1. Fix: write lnc: 1, or remove it",
    ),
    (
        "eks: {endpoint: public, public_cidrs: [8.0.0.0/6]}  # <-",
        "eks.public_cidrs[0]",
        "to a large part of the internet",
    ),
    (
        "eks: {endpoint: public, public_cidrs: [10.0.0.0/16]}  # <-",
        "eks.public_cidrs[0]",
        "private addresses do not appear on the internet, and inside the VPC the API is always reachable",
    ),
    (
        "eks: {endpoint: public, public_cidrs: [203.0.113.0/24, 203.0.113.0/24]}  # <-",
        "eks.public_cidrs[1]",
        "this network is listed twice",
    ),
    (
        "eks: {service_cidr: 10.0.128.0/20}  # <-",
        "eks.service_cidr",
        "it overlaps with the VPC's 10.0.0.0/16. Fix: write another network, for example 172.20.0.0/16",
    ),
    (
        "eks: {service_cidr: 100.64.0.0/16}  # <-",
        "eks.service_cidr",
        "EKS requires a /12 to /24 network in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 for services",
    ),
    (
        "eks: {service_cidr: 172.16.0.0/28}  # <-",
        "eks.service_cidr",
        "EKS requires a /12 to /24 network in 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16 for services",
    ),
    (
        """
network:
  cidr: 100.64.0.0/16
  peerings:
    - {vpc_id: vpc-0123456789abcdef0, cidr: 10.0.0.0/8, route_tables: [rtb-0123456789abcdef0]}
    - {vpc_id: vpc-0123456789abcdef1, cidr: 172.16.0.0/12, route_tables: [rtb-0123456789abcdef1]}
    - {vpc_id: vpc-0123456789abcdef2, cidr: 192.168.0.0/16, route_tables: [rtb-0123456789abcdef2]}
eks: {}  # <-
""",
        "eks.service_cidr",
        "the VPC and its peerings leave no private /16 network for the cluster's services. Fix: set a smaller"
        " network that",
    ),
    ("eks: {namespace: kube-system}  # <-", "eks.namespace", "this namespace is reserved for the system or a plug-in"),
    (
        "eks: {addon_versions: {vpc-cny: v1.22.4-eksbuild.3}}  # <-",
        "eks.addon_versions.vpc-cny",
        "the stack does not install an add-on of this name. Fix: write vpc-cni",
    ),
    (
        "eks: {addon_versions: {vpc-cni: v1.18.4-eksbuild.1}}  # <-",
        "eks.addon_versions.vpc-cni",
        "the VPC CNI before 1.18.5 does not support EFA-only interfaces, which trn uses",
    ),
    (
        """
eks:
  version: '1.34'
  addon_versions: {kube-proxy: v1.35.3-eksbuild.21}  # <-
""",
        "eks.addon_versions.kube-proxy",
        "kube-proxy must not be newer than the control plane, Kubernetes 1.34. Fix: write v1.34.6-eksbuild.21",
    ),
    (
        "eks: {addon_versions: {kube-proxy: v1.31.0-eksbuild.1}}  # <-",
        "eks.addon_versions.kube-proxy",
        "kube-proxy must not be more than 3 minor versions older than Kubernetes 1.35",
    ),
    (
        "eks: {plugins: {node_problem_detector: false, node_monitoring: false, node_recovery: true}}  # <-",
        "eks.plugins.node_recovery",
        "node recovery needs the node problem detector, which is off",
    ),
    (
        "eks: {plugins: {node_recovery: true}}  # <-",
        "eks.plugins.node_recovery",
        "with node_monitoring, EKS's node repair already replaces nodes with failed devices: both would "
        "replace the same node. Fix: write node_recovery: false, or",
    ),
    ("eks: {data_buckets: [corpus, corpus]}  # <-", "eks.data_buckets[1]", "it is listed twice"),
]

QUEUES = [
    ("eks: {queues: [{namespace: kueue-system}]}  # <-", "eks.queues[0].namespace", "reserved for the system"),
    ("eks: {queues: [{namespace: training}]}  # <-", "eks.queues[0].namespace", "or is the jobs' own"),
    (
        "eks: {queues: [{namespace: a}, {namespace: a}]}  # <-",
        "eks.queues[1].namespace",
        "two teams have this namespace",
    ),
    (
        "eks: {queues: [{namespace: a, nodes: {trm: 1}}]}  # <-",
        "eks.queues[0].nodes.trm",
        "no node group has this name. Fix: write trn",
    ),
    (
        "eks: {queues: [{namespace: a, max_nodes: {trn: 3}}]}  # <-",
        "eks.queues[0].max_nodes.trn",
        "node group trn has at most 2 nodes. Fix: write at most 2, or raise max_nodes of the group",
    ),
    (
        "eks: {queues: [{namespace: a, nodes: {trn: 2}, max_nodes: {trn: 1}}]}  # <-",
        "eks.queues[0].max_nodes.trn",
        "the team's own nodes are 2. Fix: write at least 2",
    ),
    (
        "eks: {queues: [{namespace: a, nodes: {trn: 1}}, {namespace: b, nodes: {trn: 2}}]}  # <-",
        "eks.queues[1].nodes.trn",
        "the teams so far have 3 nodes of trn of their own, and the group has at most 2",
    ),
    (
        "eks: {access: [{principal: 'arn:aws:iam::111122223333:role/R', namespace: speach}], queues: [{namespace: speech}]}  # <-",
        "eks.access[0].namespace",
        "it is the namespace of no team in eks.queues. Fix: write speech",
    ),
    (
        "eks: {access: [{principal: 'arn:aws:iam::111122223333:role/R', policy: cluster-admin, namespace: a}], queues: [{namespace: a}]}  # <-",
        "eks.access[0].namespace",
        "cluster-admin is for the whole cluster",
    ),
]
ACCESS = [
    (
        "eks: {access: [{principal: 'arn:aws:sts::111122223333:assumed-role/Researcher/ada'}]}  # <-",
        "eks.access[0].principal",
        "this is a session of a role, not the role. Fix: write arn:aws:iam::111122223333:role/Researcher",
    ),
    (
        "eks: {access: [{principal: 'arn:aws:iam::111122223333:root'}]}  # <-",
        "eks.access[0].principal",
        "access entries are for IAM roles and users only",
    ),
    (
        """
account: "444455556666"
eks: {access: [{principal: 'arn:aws:iam::111122223333:role/Researcher'}]}  # <-
""",
        "eks.access[0].principal",
        "it is in account 111122223333, but the cluster is in 444455556666",
    ),
    (
        """
eks:
  access:
    - {principal: 'arn:aws:iam::111122223333:role/Researcher'}
    - {principal: 'arn:aws:iam::111122223333:role/Researcher', policy: view}  # <-
""",
        "eks.access[1].principal",
        "it is listed twice: a cluster has one access entry for each principal",
    ),
]

NODES = [
    (
        "eks: {node_groups: [{instance_type: trn1.32xlrge}]}  # <-",
        "eks.node_groups[0].instance_type",
        "write trn1.32xlarge",
    ),
    (
        "eks: {node_groups: [{instance_type: trn1.2xlarge, max_nodes: 1, efa: on}]}  # <-",
        "eks.node_groups[0].efa",
        "trn1.2xlarge has no EFA",
    ),
    (
        "eks: {node_groups: [{instance_type: trn1n.32xlarge, capacity_type: capacity-block, reservation: cr-0123456789abcdef0}]}  # <-",
        "eks.node_groups[0].capacity_type",
        "trn1n.32xlarge is not available with this capacity type",
    ),
    (
        "eks: {node_groups: [{capacity_type: capacity-block}]}  # <-",
        "eks.node_groups[0].reservation",
        "a capacity block needs its reservation id",
    ),
    (
        "eks: {node_groups: [{capacity_type: capacity-block, max_nodes: 65, reservation: cr-0123456789abcdef0}]}  # <-",
        "eks.node_groups[0].max_nodes",
        "one capacity block has at most 64 instances",
    ),
    (
        "eks: {node_groups: [{capacity_type: spot, reservation: cr-0123456789abcdef0}]}  # <-",
        "eks.node_groups[0].reservation",
        "write capacity_type: on-demand for this node group",
    ),
    (
        "eks: {node_groups: [{placement_group: on, reservation: cr-0123456789abcdef0}]}  # <-",
        "eks.node_groups[0].placement_group",
        "a placement group fails with InsufficientInstanceCapacity",
    ),
    (
        "eks: {node_groups: [{name: system}]}  # <-",
        "eks.node_groups[0].name",
        "this name is reserved for the system nodes",
    ),
    (
        "eks: {node_groups: [{name: default}]}  # <-",
        "eks.node_groups[0].name",
        "Kueue puts every job without a queue into a queue of this name. Fix: write another name, for example trn",
    ),
    ("eks: {node_groups: [{name: trn-other}]}  # <-", "eks.node_groups[0].name", "CPU and memory by this one"),
    ("eks: {node_groups: [{name: root}]}  # <-", "eks.node_groups[0].name", "Volcano reserves this name"),
    (
        """
network: {zone_ids: [use1-az6, use1-az5]}
eks: {node_groups: [{zone_id: use1-az4}]}  # <-
""",
        "eks.node_groups[0].zone_id",
        "the network has no subnets in this zone, only in use1-az6 and use1-az5",
    ),
    (
        """
network: {zone_ids: [use1-az5, use1-az6]}
eks: {node_groups: [{instance_type: trn1n.32xlarge}]}  # <-
""",
        "eks.node_groups[0]",
        "the catalogue does not list use1-az5 (the network's first zone, because node group trn sets none) "
        "among the zones that offer trn1n.32xlarge",
    ),
    (
        "region: us-west-1  # <-\neks: {}",
        "region",
        "the catalogue has no zone of this region that offers trn1.32xlarge",
    ),
    (
        """
network: {private_prefix: 27}  # <-
storage: {efs: null, fsx: {existing: {id: fs-0123456789abcdef0, mount_name: abcdefgh}}}
eks: {node_groups: [{max_nodes: 4}], system: {nodes: 1, max_nodes: 1}}
""",
        "network.private_prefix",
        "but 4 nodes (56 more addresses, for pods and network interfaces)",
    ),
    (
        "eks: {node_groups: [{labels: {kubernetes.io/role: trn}}]}  # <-",
        "eks.node_groups[0].labels.kubernetes.io/role",
        "labels of kubernetes.io are reserved for the system. Fix: write role, or use your own domain",
    ),
    ("eks: {system: {instance_type: t4g.large}}  # <-", "eks.system.instance_type", "this is an Arm type"),
    (
        "eks: {system: {instance_type: t3.micro}}  # <-",
        "eks.system.instance_type",
        "too small for the cluster's own pods",
    ),
    ("eks: {bastion_host: {instance_type: trn1.2xlarge}}  # <-", "eks.bastion_host.instance_type", "does not train"),
    (
        "bootstrap: {neuron_release: 2.33.0, framework: torch-xla}  # <-\neks: {}",
        "bootstrap.framework",
        "Neuron 2.33.0 has no torch-xla for training. Fix: write bootstrap.neuron_release: 2.28.1",
    ),
    (
        "eks: {ami_release: '20260714'}  # <-",
        "eks.ami_release",
        'Runtime Library 2.33 or later" (AWS, release notes of Neuron Runtime 2.31.0, 2026-07-07). '
        "Fix: write eks.ami_release: '20260625'",
    ),
    (
        "eks: {version: '1.40'}\nbootstrap: {neuron_release: 2.28.1}  # <-",
        "bootstrap.neuron_release",
        "driver 2.29.0.0 or newer (EKS's newest node image) and runtime 2.30.51.0 are not compatible",
    ),
    (
        "eks: {ami_release: '20260624'}  # <-",
        "eks.ami_release",
        "the catalogue has no Neuron node image of that date for Kubernetes 1.35. Fix: write 20260625",
    ),
]

SHAPE = [
    (
        "eks: {version: 1.35}  # <-",
        "eks.version",
        'read as a number, not as text. Fix: put it in quotes: "1.35"',
    ),
    ("eks: {endpoint: public}  # <-", "eks", "endpoint is public, but public_cidrs is empty"),
    ("eks: {endpoint: public, public_cidrs: [0.0.0.0/0]}  # <-", "eks.public_cidrs[0]", "opens the Kubernetes API"),
    ("eks: {public_cidrs: [203.0.113.0/24]}  # <-", "eks", "public_cidrs is given, but the endpoint is private"),
    ("eks: {cluster_name: my.cluster}  # <-", "eks.cluster_name", "it does not have the required form"),
    ("eks: {namespace: Training}  # <-", "eks.namespace", "it does not have the required form"),
    (
        "eks: {addon_versions: {coredns: 1.13.2}}  # <-",
        "eks.addon_versions.coredns",
        "it does not have the required form",
    ),
    (
        "eks: {access: [{principal: 'arn:aws:iam::111122223333:role/R', policy: owner}]}  # <-",
        "eks.access[0].policy",
        "not one of the allowed values",
    ),
    ("eks: {node_groups: [{min_nodes: 3, max_nodes: 2}]}  # <-", "eks.node_groups[0]", "are not in that order"),
    ("eks: {node_groups: [{nodes: 3}]}  # <-", "eks.node_groups[0]", "min_nodes 0, nodes 3 and max_nodes 2"),
    (
        "eks: {node_groups: [{user_data: echo}]}  # <-",
        "eks.node_groups[0].user_data",
        "it does not have the required form",
    ),
    (
        "eks: {node_groups: [{user_data: '#!/bin/sh --==TRN=='}]}  # <-",
        "eks",
        "user_data of node group trn contains --==TRN==, which is reserved as a separator",
    ),
    (
        "eks: {mirror: {charts: {neuron: https://r.example.com/neuron}}}  # <-",
        "eks.mirror.charts.neuron",
        "it does not have the required form",
    ),
    ("eks: {node_groups: [{name: a}, {name: a}]}  # <-", "eks", "2 node groups are named a"),
]
"""Of the wrong shape already: no rule sees them."""

TABLE = [*CLUSTER, *QUEUES, *ACCESS, *NODES]
