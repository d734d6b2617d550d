# shellcheck shell=bash
# Checks of a node before it accepts jobs.

readonly NEURON_BIN=/opt/aws/neuron/bin

step_check_mounts() {
  local path
  local -a paths=()
  read -r -a paths <<<"${TRN_MOUNTS}"
  ((${#paths[@]} > 0)) || {
    log "no mounts expected"
    return 0
  }
  for path in "${paths[@]}"; do
    retry "mount of ${path}" mounted "${path}" ||
      die "${path} is not mounted" \
        "Check the file system's security group (NFS 2049; Lustre 988 and 1018-1023), its mount target in this zone, and /etc/fstab"
    # A file system that does not respond hangs every process that uses it: detect that now, not in the job.
    timeout 30 stat -f "${path}" || die "${path} is mounted but does not respond within 30 s" \
      "Check the file system's state and its security group"
  done
}

# mounted PATH: mountpoint hangs as well where the file system does not respond: then it is mounted.
mounted() { timeout 30 mountpoint -q "$1" || (($? == 124)); }

step_check_tools() {
  [[ -z ${TRN_NEURON_TOOLS} || -x ${NEURON_BIN}/neuron-ls ]] ||
    die "${NEURON_BIN}/neuron-ls is missing although aws-neuronx-tools ${TRN_NEURON_TOOLS} is installed" \
      "Reinstall the package"
}

step_check_devices() {
  local driver="" devices count
  if ((TRN_NEURON_DEVICES_EXPECTED == 0)); then
    log "no number of Neuron devices expected"
    return 0
  fi
  if [[ ! -d /sys/module/neuron ]]; then
    driver="$(modprobe neuron 2>&1)" || log "modprobe neuron: ${driver}"
  fi
  retry "${TRN_NEURON_DEVICES_EXPECTED} Neuron devices" devices_as_expected || true # devices appear one by one
  devices="$(<"${WORK}/devices")"
  count="$(wc -w <<<"${devices}")"
  ((count == TRN_NEURON_DEVICES_EXPECTED)) ||
    die "neuron-ls shows ${count} Neuron devices, ${TRN_NEURON_DEVICES_EXPECTED} expected; missing: $(missing_devices "${devices}")${driver:+; modprobe neuron: ${driver}}" \
      "See 'neuron-ls' and 'dmesg | grep -i neuron'; if the driver is loaded the instance is faulty: replace it. (Expected number wrong? TRN_NEURON_DEVICES_EXPECTED)"
}

devices_as_expected() {
  neuron_devices >"${WORK}/devices" || : >"${WORK}/devices"
  (($(wc -w <"${WORK}/devices") == TRN_NEURON_DEVICES_EXPECTED))
}

# The indices neuron-ls reports. From Neuron 2.34 on --output-format json replaces -j.
neuron_devices() {
  local listing
  listing="$("${NEURON_BIN}/neuron-ls" -j)" || listing="$("${NEURON_BIN}/neuron-ls" --output-format json)" || return 1
  python3 -I "${LIB_DIR}/neuron_devices.py" <<<"${listing}"
}

missing_devices() {
  local index
  for ((index = 0; index < TRN_NEURON_DEVICES_EXPECTED; index++)); do
    [[ " $1 " == *" ${index} "* ]] || printf '%s ' "${index}"
  done | sed 's/ $//'
}

step_check_efa() {
  local count
  if ((TRN_EFA_EXPECTED == 0)); then
    log "no EFA expected on this node"
    return 0
  fi
  [[ -x ${FI_INFO} ]] || die "${FI_INFO} is missing" "The efa step should have installed it: see the log"
  retry "${TRN_EFA_EXPECTED} EFA devices" efa_as_expected || true
  count="$(<"${WORK}/efa")"
  ((count == TRN_EFA_EXPECTED)) ||
    die "fi_info shows ${count} EFA devices, ${TRN_EFA_EXPECTED} expected" \
      "Check that the instance type has that many, that EFA is enabled for this compute resource, and that the security group allows all traffic to and from itself"
}

# fi_info lists each device once for every fabric it offers (efa, efa-direct), so count distinct domains.
efa_as_expected() {
  { "${FI_INFO}" -p efa -t FI_EP_RDM || true; } |
    awk '$1 == "domain:" { if (!seen[$2]++) count++ } END { print count + 0 }' >"${WORK}/efa"
  (($(<"${WORK}/efa") == TRN_EFA_EXPECTED))
}
