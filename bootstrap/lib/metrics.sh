# shellcheck shell=bash
# Metrics in CloudWatch: a service writes them to a file, and the CloudWatch agent sends it. Without them a node still works: nothing here
# fails it.

readonly AGENT_CTL=/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
readonly METRICS_LOG=/var/log/trn-metrics.log

step_metrics() {
  if [[ -z ${TRN_METRICS_GROUP} ]]; then
    log "no metrics requested"
    return 0
  fi
  (metrics_agent && metrics_service) || {
    log "$(cat "${WORK}/failure" 2>/dev/null)"
    rm -f "${WORK}/failure"
    system_log "trn-bootstrap: this node sends no metrics to CloudWatch; ${TRN_LOG} has the reason"
    log "no metrics will be sent"
  }
}

# ParallelCluster's images have the agent, and run it with a configuration of its own, to which this one is added.
metrics_agent() {
  if [[ ! -x ${AGENT_CTL} ]]; then
    ("metrics_install_${PACKAGER}") || return 1
    changed "installed the CloudWatch agent"
  fi
  write_file /opt/trn-metrics/agent.json 0644 <<JSON || return 1
{"logs": {"logs_collected": {"files": {"collect_list": [
  {"file_path": "${METRICS_LOG}", "log_group_name": "${TRN_METRICS_GROUP}", "log_stream_name": "{instance_id}"}
]}}}}
JSON
  "${AGENT_CTL}" -a append-config -m ec2 -s -c file:/opt/trn-metrics/agent.json
}

metrics_install_dnf() { dnf_install_plain amazon-cloudwatch-agent; }

metrics_install_apt() {
  local name=amazon-cloudwatch-agent.deb
  local from="${TRN_AGENT_URL}/ubuntu/amd64/${TRN_AGENT_VERSION:-latest}/${name}"
  fetch_key "${TRN_AGENT_URL}/assets/amazon-cloudwatch-agent.gpg" "${TRN_AGENT_KEY_FINGERPRINT}" &&
    download "${from}" "${WORK}/${name}" && download "${from}.sig" "${WORK}/${name}.sig" &&
    verify_sha256 "${WORK}/${name}" "${TRN_AGENT_SHA}" &&
    verify_signature "${WORK}/${name}.sig" "${WORK}/${name}" "${TRN_AGENT_KEY_FINGERPRINT}" &&
    apt_wait_for_locks && dpkg -i "${WORK}/${name}"
}

metrics_service() {
  local cluster options=""
  cluster="$(basename "$(dirname "${TRN_METRICS_GROUP}")")"
  [[ ${TRN_NODE_ROLE} != head ]] || options=" --queue"
  [[ -z ${TRN_MOUNTS} ]] || options+=" --disks ${TRN_MOUNTS}"
  write_file /opt/trn-metrics/metrics.py 0755 <"${LIB_DIR}/metrics.py" || return 1
  write_file /etc/systemd/system/trn-metrics.service 0644 <<UNIT || return 1
[Unit]
Description=Metrics of this node for CloudWatch (trainium-cdk)
After=network.target

[Service]
Environment=PATH=${TRN_SLURM_BIN:-/opt/slurm/bin}:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/usr/bin/python3 /opt/trn-metrics/metrics.py ${cluster} ${METRICS_LOG}${options}
Restart=always
RestartSec=60
Nice=10

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload && systemctl enable trn-metrics.service && systemctl restart trn-metrics.service
}
