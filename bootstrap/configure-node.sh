#!/usr/bin/env bash
# Configures a plain Ubuntu or Amazon Linux node as a Trainium node, or reports exactly why it cannot.
#
#   configure-node.sh [KEY=VALUE ...]
#
# Settings come from node.env in this folder, then from the arguments (which take precedence). README.md describes keys,
# steps and files. A second run changes nothing that is already right.
set -Eeuo pipefail

# No variable of the caller (with `sudo -E`, HOME is a user's): programs of root would read files that these name. Proxies stay.
for name in $(compgen -e); do
  [[ ${name} =~ ^(https?|no)_proxy$ ]] || unset -v "${name}" || : # bash's own are read-only
done
for name in $(compgen -A function); do unset -f "${name}"; done
unset name
export HOME=/root # unset when ParallelCluster and cloud-init run a script
export PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
export LC_ALL=C.UTF-8
umask 022

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
readonly here
cd /

# shellcheck source=lib/log.sh
source "${here}/lib/log.sh"
# shellcheck source=lib/settings.sh
source "${here}/lib/settings.sh"
# shellcheck source=lib/os.sh
source "${here}/lib/os.sh"
# shellcheck source=lib/keys.sh
source "${here}/lib/keys.sh"
# shellcheck source=lib/apt.sh
source "${here}/lib/apt.sh"
# shellcheck source=lib/dnf.sh
source "${here}/lib/dnf.sh"
# shellcheck source=lib/hosts.sh
source "${here}/lib/hosts.sh"
# shellcheck source=lib/mounts.sh
source "${here}/lib/mounts.sh"
# shellcheck source=lib/users.sh
source "${here}/lib/users.sh"
# shellcheck source=lib/limits.sh
source "${here}/lib/limits.sh"
# shellcheck source=lib/kernel.sh
source "${here}/lib/kernel.sh"
# shellcheck source=lib/efa.sh
source "${here}/lib/efa.sh"
# shellcheck source=lib/neuron.sh
source "${here}/lib/neuron.sh"
# shellcheck source=lib/framework.sh
source "${here}/lib/framework.sh"
# shellcheck source=lib/checks.sh
source "${here}/lib/checks.sh"
# shellcheck source=lib/metadata.sh
source "${here}/lib/metadata.sh"
# shellcheck source=lib/credentials.sh
source "${here}/lib/credentials.sh"
# shellcheck source=lib/metrics.sh
source "${here}/lib/metrics.sh"
# shellcheck source=lib/devices.sh
source "${here}/lib/devices.sh"
# shellcheck source=lib/own.sh
source "${here}/lib/own.sh"

# The steps of each role, in order. A head node has no Neuron device: no driver, no kernel headers, no EFA there.
steps_of() {
  case "$1" in
    head) echo hosts mounts check-mounts users os-packages metadata limits neuron-packages profile framework check-tools credentials metrics own-scripts \
      environment ;;
    compute) echo hosts sysctl mounts check-mounts users os-packages metadata kernel-headers efa limits neuron-packages profile \
      framework check-tools check-devices check-efa credentials metrics devices own-scripts ;;
    # nodes of the CPU queue, which prepare data: the framework, and no driver, EFA or device
    cpu) echo hosts mounts check-mounts users os-packages metadata limits profile framework credentials own-scripts ;;
    login) echo check-mounts users os-packages metadata limits profile own-scripts environment ;;
    standalone) echo sysctl check-mounts os-packages kernel-headers efa limits neuron-packages profile \
      framework check-tools check-devices check-efa ;;
    # For a machine image: what nodes would otherwise install at each start. There are no devices and no mounts yet.
    image) echo os-packages metadata kernel-headers limits neuron-packages profile framework check-tools ;;
  esac
}

main() {
  local step
  if ((EUID != 0)); then
    report "trn-bootstrap: configure-node.sh must run as root (it installs packages); use: sudo $0 $*"
    exit 1
  fi
  settings_load "${here}/node.env" "$@"
  log_open
  take_lock
  begin_run "$@"
  detect_os
  for step in operating-system $(steps_of "${TRN_NODE_ROLE}"); do
    run_step "${step}"
  done
  finish_run
}

main "$@"
