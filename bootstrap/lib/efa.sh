# shellcheck shell=bash
# Driver and libraries of the Elastic Fabric Adapter, only where the image lacks them.

readonly FI_INFO=/opt/amazon/efa/bin/fi_info

step_efa() {
  local name="aws-efa-installer-${TRN_EFA_INSTALLER}.tar.gz"
  if ((TRN_EFA_EXPECTED == 0)); then
    log "no EFA expected on this node"
    return 0
  fi
  if [[ -x ${FI_INFO} ]]; then
    log "the image has EFA"
    return 0
  fi
  [[ -n ${TRN_EFA_INSTALLER} ]] ||
    die "${FI_INFO} is missing and TRN_EFA_INSTALLER is empty" \
      "Use an image with EFA (ParallelCluster's own have it) or set a version of the EFA installer"
  fetch_key "${TRN_EFA_URL}/aws-efa-installer.key" "${TRN_EFA_KEY_FINGERPRINT}"
  download "${TRN_EFA_URL}/${name}" "${WORK}/${name}"
  download "${TRN_EFA_URL}/${name}.sig" "${WORK}/${name}.sig"
  verify_signature "${WORK}/${name}.sig" "${WORK}/${name}" "${TRN_EFA_KEY_FINGERPRINT}"
  tar -xzf "${WORK}/${name}" -C "${WORK}"
  [[ ${PACKAGER} != apt ]] || apt_wait_for_locks
  (cd "${WORK}/aws-efa-installer" && ./efa_installer.sh --yes) ||
    die "the EFA installer ${TRN_EFA_INSTALLER} failed" "The lines above show why; a newer version may support kernel $(uname -r)"
  [[ -x ${FI_INFO} ]] || die "the EFA installer succeeded but did not install ${FI_INFO}" "See the lines above"
  changed "installed EFA ${TRN_EFA_INSTALLER}"
}
