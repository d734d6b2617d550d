# shellcheck shell=bash
# The Neuron driver, runtime, collectives and tools, at the exact versions of one SDK release.

# pick_version WANTED "OFFERED (highest first)": the highest that equals WANTED, with or without a build suffix.
pick_version() {
  local wanted="$1" offered
  while IFS= read -r offered; do
    if [[ ${offered} == "${wanted}" || ${offered} == "${wanted}"[-_~+]* ]]; then
      echo "${offered}"
      return 0
    fi
  done <<<"$2"
  return 1
}

# A head node has no devices and needs no driver; the framework loads the runtime library there too. Roles without the step of these
# packages only ask whether there are any.
neuron_packages() {
  case "${TRN_NODE_ROLE}" in
    compute | standalone | image) neuron_pair aws-neuronx-dkms "${TRN_NEURON_DKMS}" ;;
  esac
  neuron_pair aws-neuronx-collectives "${TRN_NEURON_COLLECTIVES}"
  neuron_pair aws-neuronx-runtime-lib "${TRN_NEURON_RUNTIME}"
  neuron_pair aws-neuronx-tools "${TRN_NEURON_TOOLS}"
}

neuron_pair() { [[ -z $2 ]] || echo "$1=$2"; }

step_neuron_packages() {
  local pair installed complete=yes
  local -a pairs=()
  mapfile -t pairs < <(neuron_packages)
  if ((${#pairs[@]} == 0)); then
    log "no Neuron versions set: the image's versions are kept"
    return 0
  fi
  for pair in "${pairs[@]}"; do
    installed="$("${PACKAGER}_installed_version" "${pair%%=*}")"
    pick_version "${pair#*=}" "${installed}" || complete=no
  done
  if [[ ${complete} == yes ]]; then
    log "all Neuron packages are at their versions"
    return 0
  fi
  "${PACKAGER}_install_neuron" "${pairs[@]}"
  for pair in "${pairs[@]}"; do
    installed="$("${PACKAGER}_installed_version" "${pair%%=*}")"
    pick_version "${pair#*=}" "${installed}" ||
      die "${pair%%=*} is at '${installed}' after the installation, wanted ${pair#*=}" "The lines above show why"
  done
}

# The most common failure: the driver's source does not compile on a kernel newer than the release. Prints the hint;
# the end of the compiler's log goes to our log.
driver_build_hint() {
  local make_log="" file
  for file in /var/lib/dkms/aws-neuronx/*/build/make.log; do
    [[ ! -f ${file} ]] || make_log="${file}"
  done
  if [[ -z ${make_log} ]]; then
    echo "The lines above show why"
    return 0
  fi
  tail -n 15 "${make_log}" >&2
  echo "The driver does not build on kernel $(uname -r) (${make_log}): choose a newer Neuron release or an image with an older kernel"
}

step_profile() {
  write_file /etc/profile.d/trn-neuron.sh 0644 <<'PROFILE'
# Neuron and EFA command line tools for every login shell (written by trn-bootstrap).
for _trn_dir in /opt/aws/neuron/bin /opt/amazon/efa/bin; do
  case ":${PATH}:" in
    *":${_trn_dir}:"*) ;;
    *) PATH="${_trn_dir}:${PATH}" ;;
  esac
done
unset _trn_dir
export PATH
PROFILE
  [[ -z ${TRN_SLURM_BIN} ]] || write_file /etc/profile.d/trn-slurm.sh 0644 <<PROFILE
# Slurm's commands for every login shell (written by trn-bootstrap).
export PATH="${TRN_SLURM_BIN}:\${PATH}"
PROFILE
}

# The variables of a login shell without a user's own files, for scripts of `trn`, which start none: each ends with a NUL byte.
step_environment() {
  runuser -u daemon -- env -i HOME=/nonexistent LANG=C.UTF-8 PATH="${PATH}" timeout 60 bash --login -c 'env -0' </dev/null |
    grep -zvE '^(HOME|USER|LOGNAME|MAIL|SHELL|PWD|OLDPWD|SHLVL|TERM|_|HIST[A-Z]*)=' | sort -z | write_file /etc/trn-environment 0644
}
