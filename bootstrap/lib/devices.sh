# shellcheck shell=bash
# A service of root that measures whether the node works (devices.py), and gives a node with a device error to no further job.

step_devices() {
  local state=drain disks=""
  if [[ -z ${TRN_DEVICE_COUNTERS} ]]; then
    log "no counters of devices are known"
    return 0
  fi
  # ParallelCluster ends and replaces a drained node itself (clustermgtd). On AWS PCS, Slurm ends it
  [[ -z ${TRN_SLURM_BIN} ]] || state=power_down_asap
  [[ -z ${TRN_MOUNTS} ]] || disks=" --disks ${TRN_MOUNTS}"
  write_file /opt/trn-devices/devices.py 0755 <"${LIB_DIR}/devices.py"
  write_file /etc/systemd/system/trn-devices.service 0644 <<UNIT
[Unit]
Description=Whether the devices of this node work (trainium-cdk)
After=network.target

[Service]
Environment=PATH=${TRN_SLURM_BIN:-/opt/slurm/bin}:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/usr/bin/python3 -I /opt/trn-devices/devices.py ${TRN_DEVICES} ${state} ${TRN_DEVICE_COUNTERS}${disks}
Restart=always
RestartSec=60
Nice=10
MemoryMax=200M
NoNewPrivileges=yes
ProtectHome=read-only
ProtectSystem=strict
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  systemctl enable trn-devices.service
  systemctl restart trn-devices.service
}
