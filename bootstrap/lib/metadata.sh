# shellcheck shell=bash
# What a job must not use of its node, whoever it runs as: the node's role, and the file systems past the kernel, where a program says
# itself whose files it wants. Rules of nftables decide by the owner of a connection.

readonly METADATA_RULES=/etc/trn-metadata.nft
readonly METADATA_UNIT=trn-metadata.service

step_metadata() {
  command -v nft >/dev/null || "${PACKAGER}_install_plain" nftables
  if [[ ${TRN_NODE_ROLE} == image ]]; then
    log "each node writes its own rules"
    return 0
  fi
  metadata_rules | write_file "${METADATA_RULES}" 0644
  # At each boot before the network is there, and whenever nftables.service has removed all rules.
  write_file "/etc/systemd/system/${METADATA_UNIT}" 0644 <<UNIT
[Unit]
Description=Who may use this node's role and its file systems (trainium-cdk)
DefaultDependencies=no
After=nftables.service
PartOf=nftables.service
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=$(command -v nft) -f ${METADATA_RULES}

[Install]
WantedBy=sysinit.target
UNIT
  nft -f "${METADATA_RULES}" ||
    die "nft cannot load ${METADATA_RULES}, so jobs could act as this node" "Use an image whose kernel has nf_tables"
  systemctl daemon-reload
  systemctl enable "${METADATA_UNIT}"
}

# What has no owner passes: the kernel's own connections, such as its mounts. A refused program is told at once: it need not wait.
metadata_rules() {
  local owners
  owners="$(metadata_owners)"
  printf '%s\n' "# Written by trn-bootstrap." "table inet trn" "delete table inet trn" "table inet trn {" "chain output {" \
    "type filter hook output priority filter; policy accept;"
  # the head node of ParallelCluster has rules of its own (Imds.Secured)
  if [[ ${TRN_NODE_ROLE} != head || ! -e /etc/parallelcluster/cfnconfig ]]; then
    metadata_only "${owners}" "ip daddr 169.254.169.254"
    metadata_only "${owners}" "ip6 daddr fd00:ec2::254"
  fi
  metadata_only 0 "ip daddr 127.0.0.0/8 tcp dport 20049-21049" # where the mount helper of EFS listens (its efs-utils.conf)
  metadata_only 0 "th dport 2049"                              # NFS
  printf '%s\n' "}" "}"
}

# metadata_only OWNERS WHAT: rules that refuse it to others.
metadata_only() {
  printf 'meta l4proto tcp %s meta skuid != { %s } reject with tcp reset\n' "$2" "$1"
  printf 'meta l4proto udp %s meta skuid != { %s } reject\n' "${2/ tcp / udp }" "$1"
}

# Numbers of those that may use the role: root, ParallelCluster's account, and that of EC2 Instance Connect, where they exist. Accounts of
# the system are local, and below 1000: a user of such a name is none.
metadata_owners() {
  awk -F: '$3 == 0 || ($1 ~ /^(pcluster-admin|ec2-instance-connect)$/ && $3 < 1000) { print $3 }' /etc/passwd | sort -nu | paste -sd,
}
