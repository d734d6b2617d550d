# shellcheck shell=bash
# The operating system, and the packages that jobs need from it.

OS_ID=""       # ubuntu | amzn
OS_VERSION=""  # 22.04 | 24.04 | 2023
OS_CODENAME="" # jammy | noble | (none)
PACKAGER=""    # apt | dnf

detect_os() {
  local release="/etc/os-release"
  OS_ID="$(os_release_field "${release}" ID)"
  OS_VERSION="$(os_release_field "${release}" VERSION_ID)"
  OS_CODENAME="$(os_release_field "${release}" VERSION_CODENAME)"
  case "${OS_ID}-${OS_VERSION}" in
    ubuntu-22.04 | ubuntu-24.04) PACKAGER=apt ;;
    amzn-2023 | amzn-2023.*) PACKAGER=dnf ;;
    *) PACKAGER="" ;;
  esac
}

step_operating_system() {
  [[ -n ${PACKAGER} ]] ||
    die "'${OS_ID:-unknown} ${OS_VERSION}' is not supported" \
      "Neuron is published for Ubuntu 22.04, Ubuntu 24.04 and Amazon Linux 2023: choose an image of one of these"
  log "${OS_ID} ${OS_VERSION} ${OS_CODENAME}, packages by ${PACKAGER}"
}

# Of os-release(5): a value is plain, or in single or double quotes.
os_release_field() { sed -n "s/^$2=[\"']\{0,1\}\([^\"']*\)[\"']\{0,1\}\$/\1/p" "$1"; }

step_os_packages() {
  local -a wanted=()
  read -r -a wanted <<<"${TRN_OS_PACKAGES}"
  ((${#wanted[@]} > 0)) || {
    log "no extra packages requested"
    return 0
  }
  "${PACKAGER}_install_plain" "${wanted[@]}"
}
