"""Environments that are accepted, with a notice about each: (YAML, level, key, part of the message)."""

from __future__ import annotations

TABLE = [
    (
        "pcluster: {}\nencryption: customer-key",
        "info",
        "encryption",
        "the root volumes of nodes, with /home on the head node, are encrypted with the account's default key of EBS",
    ),
    (
        "pcluster: {queues: [{compute_resources: [{instance_type: trn1.2xlarge, max_nodes: 4}]}]}",
        "warning",
        "pcluster.queues[0].compute_resources[0].max_nodes",
        "trn1.2xlarge has no EFA, so that a job cannot use more than one of these nodes",
    ),
    (
        "pcluster: {queues: [{compute_resources: [{efa: off}]}]}",
        "warning",
        "pcluster.queues[0].compute_resources[0].efa",
        "trn has up to 16 nodes of trn1.32xlarge, and jobs of several nodes need EFA",
    ),
    (
        "pcluster: {queues: [{compute_resources: [{min_nodes: 2}]}]}",
        "warning",
        "pcluster.queues[0].compute_resources[0].min_nodes",
        "2 x trn1.32xlarge always run and are always charged: 43.00 USD an hour, 31,390 USD a month",
    ),
    (
        "region: us-west-2\npcluster: {queues: [{compute_resources: [{min_nodes: 2}]}]}",
        "warning",
        "pcluster.queues[0].compute_resources[0].min_nodes",
        "43.00 USD an hour, 31,390 USD a month",
    ),
    (
        """
region: us-west-2
pcluster: {queues: [{compute_resources: [{min_nodes: 2}]}]}
catalog: {prices: {us-west-2: {trn1.32xlarge: 10.0}}}
""",
        "warning",
        "pcluster.queues[0].compute_resources[0].min_nodes",
        "20.00 USD an hour, 14,600 USD a month",
    ),
    (
        """
pcluster:
  queues:
    - {name: a, compute_resources: [{reservation: cr-0123456789abcdef0}]}
    - {name: b, compute_resources: [{reservation: cr-0123456789abcdef0}]}
""",
        "warning",
        "pcluster.queues[1].compute_resources[0].reservation",
        "a/trn uses the same reservation",
    ),
    (
        """
region: us-east-2
pcluster: {queues: [{compute_resources: [{instance_type: trn2u.48xlarge, max_nodes: 1}]}]}
catalog: {instances: {trn2u.48xlarge: {zone_ids: [use2-az1]}}}
""",
        "info",
        "pcluster.queues[0].compute_resources[0].max_nodes",
        "an UltraServer consists of 4 trn2u.48xlarge instances",
    ),
    (
        "eks: {plugins: {neuron_scheduler: true}}",
        "info",
        "eks.plugins.neuron_scheduler",
        "jobs of `trn submit` use whole nodes and do not need it. It is only for your own pods that use a "
        "part of a node",
    ),
    (
        "region: ap-south-2\neks: {node_groups: [{instance_type: trn2u.48xlarge, max_nodes: 4}]}",
        "warning",
        "eks.node_groups[0].instance_type",
        "jobs do not use the NeuronLink between the instances of an UltraServer: over several instances they "
        "communicate through EFA. Fix: choose a type without it, for example trn2.48xlarge, if trn2u.48xlarge"
        " costs more",
    ),
    (
        """
region: us-east-2
bootstrap: {neuron_release: 2.33.0, framework: torch-native}
pcluster: {queues: [{compute_resources: [{instance_type: trn2.48xlarge}]}]}
""",
        "info",
        "bootstrap.framework",
        "is a beta",
    ),
    (
        "bootstrap: {pip_packages: [torch-neuronx==1.0]}",
        "warning",
        "bootstrap.pip_packages[0]",
        "Neuron 2.28.1 pins torch-neuronx 2.9.0.2.12.22436",
    ),
    (
        "bootstrap: {venv: /opt/venvs/neuron}",
        "warning",
        "bootstrap.venv",
        "it is not on shared storage (/efs, /home): each node would need its own. Fix: write /efs/neuron",
    ),
    (
        """
region: ap-south-2
pcluster: {queues: [{compute_resources: [{instance_type: trn2.48xlarge}]}]}
""",
        "warning",
        "region",
        "ParallelCluster 3.16.1 does not list this region as supported; the current list is read at deployment",
    ),
    (
        "region: ap-southeast-2\npcluster: {queues: [{compute_resources: [{min_nodes: 2}]}]}",
        "warning",
        "pcluster.queues[0].compute_resources[0].min_nodes",
        "2 x trn1.32xlarge always run and are always charged: the catalogue has no price of trn1.32xlarge in "
        "ap-southeast-2. The deployment waits for them,",
    ),
    (
        "pcluster: {version: 3.16.0}",
        "warning",
        "pcluster.version",
        'it has known problems: "Security vulnerabilities in Slurm: CVE-2026-65107',
    ),
    (
        f"pcluster: {{queues: [{', '.join(f'{{name: q{i}}}' for i in range(20))}]}}",
        "warning",
        "pcluster.queues",
        "with 20 queues or more, cluster updates may fail: the head node has 30 s to read the launch templates of all queues. Fix",
    ),
    (
        "pcluster: {version: 3.17.0}",
        "info",
        "pcluster.version",
        "the configuration was only checked with ParallelCluster 3.16.1",
    ),
    (
        """
network: {peerings: [{vpc_id: vpc-0123456789abcdef0, cidr: 172.20.0.0/16, route_tables: [rtb-0123456789abcdef0]}]}
eks: {service_cidr: 172.20.0.0/16}
""",
        "warning",
        "eks.service_cidr",
        "it overlaps with 172.20.0.0/16 of vpc-0123456789abcdef0: pods cannot reach these addresses of the peer",
    ),
    (
        "network: {cidr: 11.0.0.0/16}",
        "warning",
        "network.cidr",
        "these are public addresses: nodes will not be able to reach their owners on the internet",
    ),
    (
        """
network:
  nat: per-zone
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 10.0.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]
pcluster: {}
""",
        "warning",
        "network.nat",
        "it has no effect on an existing VPC",
    ),
    (
        """
network:
  nat: none
  interface_endpoints: [ssm, ssmmessages, ec2, logs, cloudformation, dynamodb, monitoring]
pcluster: {custom_ami: ami-0123456789abcdef0}
""",
        "warning",
        "bootstrap.framework",
        "without a NAT gateway no framework is installed: jobs can only use what the image contains at bootstrap.venv",
    ),
    (
        "network: {peerings: [{vpc_id: vpc-0123456789abcdef0, cidr: 172.31.0.0/16}]}",
        "warning",
        "network.peerings[0].route_tables",
        "the other VPC gets no route back",
    ),
    (
        """
network:
  peerings:
    - vpc_id: vpc-0123456789abcdef0
      cidr: 172.31.0.0/16
      route_tables: [rtb-0123456789abcdef0]
      accepter_role: arn:aws:iam::111122223333:role/Accept
""",
        "warning",
        "network.peerings[0].accepter_role",
        "within one account the connection is accepted automatically",
    ),
    (
        """
name: speech-recognition-group
pcluster: {queues: [{name: bert-large-pretraining, compute_resources: [{name: ondemand-trn1}]}]}
""",
        "warning",
        "pcluster.queues[0].compute_resources[0].name",
        "bert-large-pretraining-dy-ondemand-trn1-16.speech-recognition-group-slurm.pcluster: 82 characters",
    ),
    (
        "pcluster: {overrides: {SharedStorage: []}}",
        "warning",
        "pcluster.overrides.SharedStorage",
        "SharedStorage = []: the stack sets SharedStorage itself and relies on it: the nodes' security groups do not reach",
    ),
    (
        """
pcluster:
  provider: {policies: [arn:aws:iam::111122223333:policy/attaches-them]}
  overrides: {HeadNode: {Iam: {AdditionalIamPolicies: [{Policy: arn:aws:iam::aws:policy/AmazonS3FullAccess}]}}}
""",
        "warning",
        "pcluster.overrides.HeadNode.Iam.AdditionalIamPolicies[0].Policy",
        "every job on these nodes would have full access to that service",
    ),
    (
        "pcluster: {overrides: {LoginNodes: {Pools: [{Name: own, InstanceType: c5.large, Networking: {SubnetIds: [subnet-1]}}]}}}",
        "warning",
        "pcluster.overrides.LoginNodes.Pools[0].Name",
        "the pool is new: it has none of our scripts and permissions, and `trn submit` does not use it",
    ),
    (
        "pcluster: {overrides: {HeadNode: {LocalStorage: {RootVolume: {Encrypted: false}}}}}",
        "warning",
        "pcluster.overrides.HeadNode.LocalStorage.RootVolume.Encrypted",
        "the nodes' disks are not encrypted",
    ),
    (
        "pcluster: {overrides: {DevSettings: {Cookbook: {ChefCookbook: s3://x/y}}}}",
        "warning",
        "pcluster.overrides.DevSettings.Cookbook",
        "it replaces ParallelCluster's own and runs with all of its permissions",
    ),
    (
        "pcluster: {overrides: {DirectoryService: {LdapTlsReqCert: never}}}",
        "warning",
        "pcluster.overrides.DirectoryService.LdapTlsReqCert",
        "the server's certificate is not verified: an attacker could impersonate the directory and let anyone in",
    ),
    (
        "pcluster: {overrides: {HeadNode: {Networking: {SecurityGroups: [sg-1]}}}}",
        "warning",
        "pcluster.overrides.HeadNode.Networking.SecurityGroups",
        "they replace all security groups of ParallelCluster, and their rules cannot be checked here",
    ),
    (
        """
pcluster:
  accounting: {uri: db, user: slurm, password_secret: "arn:aws:secretsmanager:us-east-1:111122223333:secret:s"}
""",
        "info",
        "pcluster.accounting.uri",
        "port 3306 is used",
    ),
    (
        "pcluster: {head: {custom_ami: ami-0123456789abcdef0}}",
        "info",
        "pcluster.head.custom_ami",
        "nodes can only use an image that ParallelCluster 3.16.1 has built for ubuntu2404",
    ),
    (
        "pcluster: {queues: [{custom_ami: ami-0123456789abcdef0}]}",
        "info",
        "pcluster.queues[0].custom_ami",
        "nodes can only use an image that ParallelCluster 3.16.1 has built for ubuntu2404. Fix: build it with"
        " `trn image bake`; `trn",
    ),
    (
        """
network: {nat: none, interface_endpoints: [ssm, ssmmessages, ec2, logs, cloudformation, dynamodb]}
pcluster: {custom_ami: ami-0123456789abcdef0}
bootstrap: {framework: none}
""",
        "info",
        "network.interface_endpoints",
        "without a NAT gateway nodes cannot send metrics to CloudWatch: the head node's memory and disk use "
        "is not shown. Fix: add monitoring to see it",
    ),
    (
        "pcluster: {head: {subnet: public}}",
        "info",
        "pcluster.head.ssh",
        "the head node has a public address, but no network may connect to it: SSM Session Manager does not need one",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 172.31.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]
    public_subnets: [{id: subnet-0123456789abcdef1, zone_id: use1-az6}]
pcluster: {login_nodes: {subnet: public}}
""",
        "warning",
        "pcluster.login_nodes.subnet",
        "ParallelCluster does not give login nodes public addresses: they only start if the subnet assigns "
        "public addresses, or has another connection to AWS",
    ),
    (
        "pcluster: {queues: [{compute_resources: [{min_nodes: 2}]}]}",
        "warning",
        "pcluster.queues[0].compute_resources[0].min_nodes",
        "The deployment waits for them, and fails completely if EC2 has no capacity for them",
    ),
    (
        "storage: {fsx: {s3: {uri: 's3://bucket', directory: /corpus}}}",
        "warning",
        "storage.fsx.s3.directory",
        "SCRATCH_2 always shows the bucket at the root of the file system",
    ),
    (
        "eks: {version: '1.33'}",
        "warning",
        "eks.version",
        "standard support ended on 2026-07-29: the control plane now costs six times as much",
    ),
    (
        "eks: {version: '1.40', node_groups: [{custom_ami: ami-0123456789abcdef0}]}",
        "warning",
        "eks.version",
        "newer than every version that this library was checked with",
    ),
    (
        "eks: {addon_versions: {kube-proxy: v1.34.6-eksbuild.21}}",
        "warning",
        "eks.addon_versions.kube-proxy",
        "kube-proxy is older than the control plane, Kubernetes 1.35",
    ),
    (
        "eks: {bastion_host: null}",
        "info",
        "eks.bastion_host",
        "the API is private, and the stack has no bastion host: `trn` works only from inside the VPC",
    ),
    (
        "eks: {endpoint: public, public_cidrs: [203.0.113.0/24], bastion_host: {}}",
        "warning",
        "eks.bastion_host",
        "a public endpoint needs no bastion host: none is created",
    ),
    (
        "eks: {node_groups: [{instance_type: trn1.2xlarge, max_nodes: 1, efa_layout: efa}]}",
        "warning",
        "eks.node_groups[0].efa_layout",
        "these nodes have no EFA interfaces",
    ),
    (
        "eks: {plugins: {autoscaler: false}}",
        "info",
        "eks.plugins.autoscaler",
        "a job in the queue does not wait for its nodes",
    ),
    (
        "eks: {}\nbootstrap: {neuron_release: 2.31.0, framework: none}",
        "info",
        "bootstrap.neuron_release",
        "each job must name its image",
    ),
    (
        "pcluster: {}\nbootstrap: {neuron_release: 2.30.0}",
        "warning",
        "bootstrap.neuron_release",
        'AWS does not support it: "PyTorch/XLA is no longer supported for training workloads on Trainium" '
        "(AWS, announcement, Neuron 2.30, 2026-05-20). Fix: write bootstrap.neuron_release: 2.28.1",
    ),
    (
        "eks: {}\nbootstrap: {neuron_release: 2.29.1, framework: torch-xla}",
        "info",
        "bootstrap.framework",
        "stay on Neuron 2.28 and PyTorch 2.9",
    ),
    (
        "eks: {ami_release: '20991231'}",
        "warning",
        "eks.ami_release",
        "newer than every node image in the catalogue: its Neuron driver cannot be checked",
    ),
    (
        "eks: {node_groups: [{min_nodes: 2, nodes: 2}]}",
        "warning",
        "eks.node_groups[0].min_nodes",
        "2 x trn1.32xlarge always run and are always charged: 43.00 USD an hour",
    ),
    (
        "region: us-east-2\npcs: {queues: [{capacity_type: capacity-block, compute_resources: [{instance_type: trn2.48xlarge, reservation: "
        "cr-0123456789abcdef0}]}]}",
        "info",
        "pcs.queues[0].capacity_type",
        "PCS's user guide names only P types for capacity blocks",
    ),
]
