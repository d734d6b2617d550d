# shellcheck shell=bash
# Headers of the kernel that runs: without them dkms cannot build the Neuron driver.

step_kernel_headers() {
  local kernel
  kernel="$(uname -r)"
  if [[ -z ${TRN_NEURON_DKMS} ]]; then
    log "no driver to build"
    return 0
  fi
  if [[ -e /lib/modules/${kernel}/build/Makefile ]]; then
    log "headers of ${kernel} are already installed"
    return 0
  fi
  case "${PACKAGER}" in
    apt)
      apt_refresh
      retry "installation of linux-headers-${kernel}" apt_install "linux-headers-${kernel}" ||
        kernel_headers_missing "${kernel}"
      ;;
    dnf)
      # The default kernel's package is kernel-devel, that of a newer line kernel6.12-devel and so on: all provide this name.
      retry "installation of the kernel headers" dnf_run install "kernel-devel-uname-r = ${kernel}" ||
        kernel_headers_missing "${kernel}"
      ;;
  esac
  [[ -e /lib/modules/${kernel}/build/Makefile ]] || kernel_headers_missing "${kernel}"
  changed "installed the headers of kernel ${kernel}"
}

kernel_headers_missing() {
  die "the headers of the running kernel $1 cannot be installed, so the Neuron driver cannot be built" \
    "The package mirror no longer has this kernel, or the kernel was upgraded without a reboot: use a newer image"
}
