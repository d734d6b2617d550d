"""Networks that must be refused: (YAML, key, part of the message), as in `bad_environments`."""

from __future__ import annotations

ZONES = [
    (
        "region: us-west-1  # <-",
        "region",
        "the catalogue has no zone of this region that offers trn1.32xlarge. Fix: write region: ap-south-1,",
    ),
    (
        "network: {zone_ids: [usw2-az1]}  # <-\npcluster: {}",
        "network.zone_ids[0]",
        "it is in us-west-2, but the region is us-east-1. Fix: write use1-az4, use1-az5 or use1-az6, or "
        "region: us-west-2",
    ),
    (
        "network: {zone_ids: [xyz9-az1]}  # <-\npcluster: {}",
        "network.zone_ids[0]",
        "the catalogue has no region whose zone ids begin with xyz9",
    ),
    (
        """
network:
  zone_ids:
    - use1-az5
    - use1-az5  # <-
""",
        "network.zone_ids[1]",
        "this zone is listed twice",
    ),
    (
        "network: {zone_ids: [use1-az1]}\npcluster:\n  queues:\n    - compute_resources:\n      - name: trn  # <-",
        "pcluster.queues[0].compute_resources[0]",
        "the catalogue does not list use1-az1 (the network's first zone, because queue compute1 sets none) "
        "among the zones that offer trn1.32xlarge",
    ),
    (
        """
network: {zone_ids: [use1-az6, use1-az5]}
pcluster:
  queues:
    - zone_id: use1-az5  # <-
      compute_resources: [{instance_type: trn1n.32xlarge}]
""",
        "pcluster.queues[0].zone_id",
        "Fix: write zone_id: use1-az6 in the queue, or correct catalog.instances.trn1n.32xlarge.zone_ids",
    ),
    (
        """
network: {zone_ids: [use1-az5]}
pcluster:
  queues:
    - zone_id: use1-az6  # <-
""",
        "pcluster.queues[0].zone_id",
        "the network has no subnets in this zone, only in use1-az5. Fix: add use1-az6 to network.zone_ids, or"
        " choose use1-az5",
    ),
    (
        """
region: us-east-2
pcluster:  # the network is not written at all: no line but the file's
  queues:
    - name: one
      compute_resources: [{instance_type: trn1n.32xlarge}]
    - name: two
      compute_resources: [{instance_type: trn3.48xlarge}]
catalog:
  instances:
    trn3.48xlarge: {family: trn1, vcpus: 1, memory_gib: 1, neuron_devices: 1, cores_per_device: 1, hbm_gib: 1,
      network_cards: 1, network_gbps: 1, efa_interfaces: 1, zone_ids: [use2-az1]}
""",
        "network.zone_ids",
        "no zone offers every instance type: trn1n.32xlarge in use2-az3; trn3.48xlarge in use2-az1. Fix: set "
        "zone_id for each queue, or use",
    ),
    (
        """
region: us-east-2
pcluster:
  queues:
    - compute_resources: [{name: a, instance_type: trn1.32xlarge}, {name: b, instance_type: trn3.48xlarge}]
catalog:
  instances:
    trn3.48xlarge: {family: trn1, vcpus: 1, memory_gib: 1, neuron_devices: 1, cores_per_device: 1, hbm_gib: 1,
      network_cards: 1, network_gbps: 1, efa_interfaces: 1, zone_ids: [use2-az1]}
""",
        "network.zone_ids",
        "Fix: put trn1.32xlarge and trn3.48xlarge into separate queues, each with its zone_id: a queue has one zone",
    ),
    (
        """
pcluster: {queues: [{compute_resources: [{instance_type: trn3.48xlarge}]}]}
catalog:
  instances:
    trn3.48xlarge: {family: trn1, vcpus: 1, memory_gib: 1, neuron_devices: 1, cores_per_device: 1, hbm_gib: 1,
      network_cards: 1, network_gbps: 1, efa_interfaces: 1}
""",
        "network.zone_ids",
        "the zones that offer trn3.48xlarge are not known, so that none can be chosen",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 10.0.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]
pcluster:
  head: {subnet: public}  # <-
""",
        "pcluster.head.subnet",
        "the existing VPC is described without public subnets",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 10.0.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]
pcluster:
  queues: [{zone_id: use1-az4}]  # <-
""",
        "pcluster.queues[0].zone_id",
        "no private subnet is in this zone, only in use1-az6. Fix: add use1-az4 to "
        "network.existing.private_subnets, or choose use1-az6",
    ),
]

ADDRESSES = [
    (
        "network: {cidr: 10.0.0.0/8}  # <-",
        "network.cidr",
        "a VPC has a prefix from /16 to /28, not /8",
    ),
    (
        "network: {cidr: 10.0.0.0/22, private_prefix: 22}  # <-\npcluster: {}",
        "network.cidr",
        "it has 1,024 addresses, but 1 zone(s) with a public /24 and a private /22 subnet each need 1,280",
    ),
    (
        """
network:
  private_prefix: 28  # <-
pcluster: {}
""",
        "network.private_prefix",
        # 16 nodes, the head node and EFS
        "has 11 addresses (16, of which AWS reserves 5), but 16 nodes and 1 for the head node and 1 for the EFS mount target need 18. "
        "Fix: write private_prefix: 27",
    ),
    (
        """
network: {private_prefix: 27}  # <-
pcluster: {queues: [{compute_resources: [{efa: off, max_nodes: 16}]}]}
""",
        "network.private_prefix",
        # 16 nodes x 8 network cards, the head node and EFS, and the 5 of AWS: 135 needs 256
        "16 nodes (112 more addresses, because nodes without EFA need one for each network card)",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 172.31.0.0/16
    private_subnets:
      - id: subnet-0123456789abcdef0
        zone_id: use1-az6
        cidr: 172.31.0.0/28  # <-
storage: {efs: {existing: {id: fs-0123456789abcdef0}}}
pcluster: {}
""",
        "network.existing.private_subnets[0].cidr",
        "but 16 nodes and 1 for the head node need 17. Fix: use a larger subnet, or lower max_nodes",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 172.31.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6, cidr: 172.30.0.0/20}]  # <-
pcluster: {}
""",
        "network.existing.private_subnets[0].cidr",
        "it is not inside the VPC's network 172.31.0.0/16",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 172.31.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]
    public_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]  # <-
pcluster: {}
""",
        "network.existing.public_subnets[0].id",
        "this subnet is listed twice",
    ),
]

NETWORK = [
    (
        "network: {nat: none, interface_endpoints: [ssm, ssmmessages, ec2, logs]}\npcluster: {custom_ami: ami-0123456789abcdef0}\nbootstrap: {framework: none}",
        "network.interface_endpoints",
        "without a NAT gateway nodes cannot reach cloudformation and dynamodb",
    ),
    (
        """
network: {nat: none, interface_endpoints: [ssm, ssmmessages, ec2, logs, cloudformation, dynamodb]}
pcluster: {custom_ami: ami-0123456789abcdef0, login_nodes: {}}
""",
        "network.interface_endpoints",
        "without a NAT gateway nodes cannot reach autoscaling and elasticloadbalancing. Fix: add autoscaling and",
    ),
    (
        """
network:
  nat: none
  s3_endpoint: false  # <-
  interface_endpoints: [ssm, ssmmessages, ec2, logs, cloudformation, dynamodb]
pcluster: {custom_ami: ami-0123456789abcdef0}
""",
        "network.s3_endpoint",
        "without a NAT gateway nodes need the S3 endpoint, because their start scripts are in S3",
    ),
    (
        """
network:
  nat: none
  interface_endpoints: [ssm, ssmmessages, ec2, logs, cloudformation, dynamodb]
pcluster:
  queues:
    - name: here  # <-
""",
        "pcluster.queues[0].custom_ami",
        "without a NAT gateway nodes cannot install Neuron",
    ),
    (
        "network: {interface_endpoints: [ssm, ssm]}  # <-",
        "network.interface_endpoints[1]",
        "this endpoint is listed twice",
    ),
    (
        "pcluster: {head: {ssh: {from_cidrs: [0.0.0.0/1]}}}  # <-",
        "pcluster.head.ssh.from_cidrs[0]",
        "this opens SSH to a large part of the internet",
    ),
    (
        "pcluster: {head: {ssh: {from_cidrs: [192.0.2.0/24, 192.0.2.0/24]}}}  # <-",
        "pcluster.head.ssh.from_cidrs[1]",
        "this network is listed twice: EC2 rejects a duplicate rule",
    ),
]

PEERING = [
    (
        """
network:
  peerings:
    - vpc_id: vpc-0123456789abcdef0
      cidr: 10.0.128.0/20  # <-
      route_tables: [rtb-0123456789abcdef0]
""",
        "network.peerings[0].cidr",
        "it overlaps with 10.0.0.0/16 of this VPC: routes cannot distinguish them. Fix: write another network.cidr",
    ),
    (
        """
network:
  peerings:
    - {vpc_id: vpc-0123456789abcdef0, cidr: 172.31.0.0/16, route_tables: [rtb-0123456789abcdef0]}
    - {vpc_id: vpc-0123456789abcdef1, cidr: 172.31.0.0/20, route_tables: [rtb-0123456789abcdef1]}  # <-
""",
        "network.peerings[1].cidr",
        "it overlaps with 172.31.0.0/16 of the peering with vpc-0123456789abcdef0",
    ),
    (
        """
network:
  peerings:
    - {vpc_id: vpc-0123456789abcdef0, cidr: 172.31.0.0/16, route_tables: [rtb-0123456789abcdef0]}
    - {vpc_id: vpc-0123456789abcdef0, cidr: 172.16.0.0/16, route_tables: [rtb-0123456789abcdef1]}  # <-
""",
        "network.peerings[1].vpc_id",
        "this VPC is listed twice: AWS allows one connection between two VPCs",
    ),
    (
        """
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 172.31.0.0/16
    private_subnets: [{id: subnet-0123456789abcdef0, zone_id: use1-az6}]
  peerings:
    - {vpc_id: vpc-0123456789abcdef0, cidr: 10.0.0.0/16, route_tables: [rtb-0123456789abcdef0]}  # <-
pcluster: {}
""",
        "network.peerings[0].vpc_id",
        "this is the VPC of this environment",
    ),
    (
        """
network:
  peerings:
    - {vpc_id: vpc-0123456789abcdef0, cidr: 172.31.0.0/16, account: "444455556666"}  # <-
""",
        "network.peerings[0].accepter_role",
        "the VPC belongs to account 444455556666, and no role can accept the connection there",
    ),
    (
        """
network:
  peerings:
    - vpc_id: vpc-0123456789abcdef0
      cidr: 172.31.0.0/16
      account: "444455556666"
      accepter_role: arn:aws:iam::111122223333:role/Accept  # <-
""",
        "network.peerings[0].accepter_role",
        "the role is in account 111122223333, but the VPC is in 444455556666",
    ),
    (
        """
network:
  peerings:
    - vpc_id: vpc-0123456789abcdef0
      cidr: 172.31.0.0/16
      region: us-west-2
      route_tables: [rtb-0123456789abcdef0]  # <-
""",
        "network.peerings[0].route_tables",
        "they are in region us-west-2: this stack cannot add routes there",
    ),
]

GOVERNMENT = [
    (
        """
region: us-gov-west-1  # <-
pcluster: {}
catalog: {instances: {trn1.32xlarge: {zone_ids: [usgw1-az1]}}}
""",
        "region",
        "Fix: list the zones that your account sees under catalog.instances.trn1.32xlarge.zone_ids, and the beginning of their ids under "
        "catalog.regions, for example {usgw1: us-gov-west-1}.",
    ),
]

TABLE = [*GOVERNMENT, *ZONES, *ADDRESSES, *NETWORK, *PEERING]
