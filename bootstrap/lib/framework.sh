# shellcheck shell=bash
# The Python virtual environment with the compiler and the framework, owned by the image's user. Jobs run it and cannot change it. Yet who
# is that user can, so root runs and opens nothing there: what touches it runs as that user.

step_framework() {
  local home link venv
  local -a requirements=()
  mapfile -t requirements < <(framework_requirements)
  if [[ -z ${TRN_VENV} ]] || ((${#requirements[@]} == 0)); then
    log "no framework requested"
    return 0
  fi
  [[ -n ${TRN_USER} ]] || die "TRN_VENV is set but TRN_USER is empty" "Set the user that owns the virtual environment"
  home="$(getent passwd "${TRN_USER}" | cut -d: -f6)" || true
  [[ -n ${home} ]] || die "the user ${TRN_USER} does not exist on this image" "Ubuntu images have ubuntu, Amazon Linux ec2-user"
  link="${TRN_VENV}"
  [[ ${link} == /* ]] || link="${home}/${link}"
  venv="${link}-$(framework_hash "${requirements[@]}")"
  if [[ ${TRN_NODE_ROLE} == image && ${TRN_VENV_SHARED} == yes ]]; then
    log "${link} is shared: the head node creates it"
    return 0
  fi
  framework_check_libc
  if [[ ${TRN_NODE_ROLE} =~ ^(compute|cpu)$ && ${TRN_VENV_SHARED} == yes ]]; then
    framework_await "${venv}" "${requirements[@]}"
    framework_link_if_older "${link}" "${venv}"
    return 0
  fi
  framework_install "${venv}" "${requirements[@]}"
  framework_link "${link}" "${venv}"
  if [[ ${TRN_NODE_ROLE} == head && -n ${TRN_JOBS_USER} && ${TRN_VENV} != /* ]]; then
    framework_in_home "${link}" "${TRN_JOBS_USER%%:*}"
  fi
}

# framework_hash REQUIREMENT...: identifies an environment. Each has its own folder, so that a job keeps the files it
# started with, and a node that starts after a rollback finds its own.
framework_hash() { framework_wanted "$@" | sha256sum | cut -c 1-12; }

framework_wanted() { printf '%s\n' "${OS_ID} ${OS_VERSION}" "${TRN_PYTHON}" "$@"; }

# framework_await VENV REQUIREMENT...: the head node may still be creating it.
framework_await() {
  local venv="$1" deadline=$((SECONDS + TRN_VENV_WAIT))
  shift
  until framework_finished "${venv}" "$@"; do
    ((SECONDS < deadline)) ||
      die "the shared virtual environment ${venv} is not finished after ${TRN_VENV_WAIT} s" \
        "The head node creates it: see its ${TRN_LOG}, and check that ${venv%/*} is mounted here. If the environment was \
changed by hand, run configure-node.sh on the head node again"
    log "waiting for ${venv}"
    sleep 5
  done
  log "the shared ${venv} is complete"
}

# framework_finished VENV REQUIREMENT...: the marker is written last.
framework_finished() {
  local venv="$1" marker="$1/.trn-requirements" within=300 # seconds; the user's files may make each command wait
  shift
  framework_owned "${venv}" && [[ "$(as_user head -c 100000 "${marker}")" == "$(framework_wanted "$@")" ]] && framework_complete "${venv}" "$@"
}

# framework_owned VENV: whether only root and TRN_USER could have made or replaced it. Everyone may write to some shared file systems, and
# the names of later environments can be guessed.
framework_owned() {
  local place
  [[ -d $1 && ! -L $1 ]] || return 1
  place="$(readlink -f "$1")"
  while [[ -n ${place} ]]; do
    [[ -n "$(find "${place}" -maxdepth 0 \( -uid 0 -o -user "${TRN_USER}" \) \
      \( ! -perm /022 -o -perm -1000 -o ! -perm /002 -group "$(id -gn "${TRN_USER}")" \))" ]] || return 1
    place="${place%/*}"
  done
}

# framework_link LINK VENV: an atomic move, so that the link always exists.
framework_link() {
  local link="$1" venv="$2" staged
  [[ "$(readlink "${link}" || true)" != "${venv##*/}" ]] || return 0
  [[ ! -e ${link} || -L ${link} ]] ||
    die "${link} is not a link but a folder, so the virtual environment cannot be replaced while jobs run" \
      "Rename it when no job uses it (mv ${link} ${link}.old), or choose another bootstrap.venv"
  # Nodes that start together on a shared file system often have equal process ids.
  staged="$(mktemp -u "${link}.$(uname -n).XXXXXXXX")"
  in_folder "${link%/*}" ln -sT "${venv##*/}" "${staged}"
  in_folder "${link%/*}" chown -h "${TRN_USER}:" "${staged}"
  in_folder "${link%/*}" mv -T "${staged}" "${link}"
  changed "${link} now points to ${venv##*/}"
}

# framework_in_home LINK USER: the same name in the home of USER.
framework_in_home() {
  local home
  home="$(getent passwd "$2" | cut -d: -f6)"
  [[ "$(runuser -u "$2" -- readlink "${home}/${TRN_VENV}" || true)" != "$1" ]] || return 0
  home="${home}/${TRN_VENV}"
  runuser -u "$2" -- mkdir -p "${home%/*}"
  runuser -u "$2" -- ln -sfT "$1" "${home}"
  changed "linked ${home} to $1"
}

# framework_link_if_older LINK VENV: ParallelCluster runs no script of the head node when an update is rolled back, so the
# first node that starts afterwards moves the link back, unless the link was changed after this node had started.
framework_link_if_older() {
  local link="$1" venv="$2" started
  started="$(date -d "${RUN_STARTED}" +%s)"
  if [[ ! -L ${link} ]] || (($(stat -c %Y "${link}") < started)); then
    framework_link "${link}" "${venv}"
  fi
}

framework_requirements() {
  local -a extra=() lines=()
  [[ -z ${TRN_NEURON_CC} ]] || echo "neuronx-cc==${TRN_NEURON_CC}"
  [[ -z ${TRN_TORCH_NEURONX} ]] || echo "torch-neuronx==${TRN_TORCH_NEURONX}"
  read -r -a extra <<<"${TRN_PIP_EXTRA}"
  ((${#extra[@]} == 0)) || printf '%s\n' "${extra[@]}"
  IFS='|' read -r -a lines <<<"${TRN_PIP_LINES}"
  ((${#lines[@]} == 0)) || printf '%s\n' "${lines[@]}"
}

# PyTorch's wheels from 2.9 on require glibc 2.35; on an older system pip only reports "no matching distribution".
framework_check_libc() {
  local have need=2.35
  [[ -n ${TRN_TORCH_NEURONX} ]] || return 0
  [[ "$(printf '2.9\n%s\n' "${TRN_TORCH_NEURONX}" | sort -V | head -n 1)" == 2.9 ]] || return 0
  have="$(getconf GNU_LIBC_VERSION)"
  have="${have##* }"
  [[ "$(printf '%s\n%s\n' "${need}" "${have}" | sort -V | head -n 1)" == "${need}" ]] ||
    die "torch-neuronx ${TRN_TORCH_NEURONX} needs glibc ${need} or newer, ${OS_ID} ${OS_VERSION} has ${have}" \
      "Use Ubuntu 22.04 or 24.04, or leave the framework out and train in a Neuron container"
}

# as_user COMMAND...: as TRN_USER. With a clean environment: root's variables must not affect the user's pip, except proxies.
# `within`, if it is set: seconds after which the command is ended.
as_user() {
  local home
  home="$(getent passwd "${TRN_USER}" | cut -d: -f6)"
  ${within:+timeout -k 5 "${within}"} runuser -u "${TRN_USER}" -- env -i --chdir=/ HOME="${home}" USER="${TRN_USER}" \
    LANG=C.UTF-8 PATH="${PATH}" ${http_proxy:+http_proxy="${http_proxy}"} ${https_proxy:+https_proxy="${https_proxy}"} \
    ${no_proxy:+no_proxy="${no_proxy}"} "$@"
}

# in_folder FOLDER COMMAND...: as TRN_USER where that user can write to FOLDER, which is made. Otherwise as root, if no link of that
# user can be in the way.
in_folder() {
  local folder="$1"
  shift
  if as_user mkdir -p "${folder}" && as_user test -w "${folder}"; then
    as_user "$@"
  elif only_roots "${folder}"; then
    mkdir -p "${folder}"
    "$@"
  else
    die "${folder} is not a folder of ${TRN_USER}, and ${TRN_USER} could replace a folder above it" \
      "Give it to that user (chown ${TRN_USER}: ${folder}), or choose another bootstrap.venv"
  fi
}

# only_roots FOLDER: whether TRN_USER can replace neither FOLDER nor a folder above it, and nothing in FOLDER.
only_roots() {
  local place="$1"
  while :; do
    if [[ -e ${place} || -L ${place} ]]; then
      [[ ! -L ${place} && $(stat -c %u "${place}") == 0 ]] || return 1
      # in a sticky folder, only root replaces what is root's
      [[ ${place} != "$1" && -k ${place} ]] || ! as_user test -w "${place}" || return 1
    fi
    [[ ${place} != / ]] || return 0
    place="${place%/*}"
    place="${place:-/}"
  done
}

framework_install() {
  local venv="$1" marker="$1/.trn-requirements" clear=--clear
  shift
  if framework_finished "${venv}" "$@"; then
    log "${venv} is complete"
    return 0
  fi
  [[ ! -e ${venv} && ! -L ${venv} ]] || framework_owned "${venv}" || framework_not_owned "${venv}"
  ! as_user test -f "${marker}" || clear="" # jobs may use a finished one: add only what is missing
  framework_python
  as_user test -d "${venv}" || in_folder "${venv%/*}" install -d -o "${TRN_USER}" -g "$(id -gn "${TRN_USER}")" "${venv}"
  framework_owned "${venv}" || framework_not_owned "${venv}"
  as_user "${TRN_PYTHON}" -m venv ${clear:+"${clear}"} "${venv}"
  # a file, so that what jobs add to these packages comes from the same indices
  printf '%s\n' '[global]' ${TRN_PIP_INDEX_URL:+"index-url = ${TRN_PIP_INDEX_URL}"} "extra-index-url = ${TRN_NEURON_PIP_URL}" |
    as_user tee "${venv}/pip.conf"
  retry "installation of $*" as_user "${venv}/bin/python" -m pip install --no-input \
    --disable-pip-version-check --no-cache-dir "$@" ||
    die "pip cannot install $* into ${venv} with $(as_user "${TRN_PYTHON}" --version)" \
      "The lines above show what pip reports; a release supports only some versions of Python"
  framework_complete "${venv}" "$@" || die "${venv} lacks packages after the installation: the log lists them" "See the lines above"
  framework_wanted "$@" | as_user tee "${marker}"
  changed "installed $* into ${venv}"
}

framework_not_owned() {
  die "${1} is not a folder of ${TRN_USER}, or others can replace it or a folder above it" \
    "Look at who owns these folders and who may write to them, and move ${1} away. Or choose another bootstrap.venv"
}

framework_python() {
  if ! command -v "${TRN_PYTHON}" >/dev/null || ! "${TRN_PYTHON}" -I -c 'import ensurepip, venv'; then
    case "${PACKAGER}" in
      apt) apt_install_plain "${TRN_PYTHON}" "${TRN_PYTHON}-venv" ;;
      dnf) dnf_install_plain "${TRN_PYTHON}" libxcrypt-compat ;;
    esac
  fi
}

# framework_complete VENV REQUIREMENT...: whether packages pinned with == have that version, as pip compares (0.21 is 0.21.0, and the
# vendor's build suffix does not count), according to the wheels' metadata (importing torch takes many seconds).
framework_complete() {
  local venv="$1"
  shift
  as_user "${venv}/bin/python" -I - "$@" <<'PYTHON'
import sys
from importlib import metadata

from pip._vendor.packaging.requirements import InvalidRequirement, Requirement

complete = True
for text in sys.argv[1:]:
    try:
        wanted = Requirement(text)
    except InvalidRequirement:  # an option, or an address alone
        continue
    if wanted.marker and not wanted.marker.evaluate():
        continue
    if not any(each.operator == "==" for each in wanted.specifier):
        continue
    try:
        installed = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        installed = ""
    if not installed or not wanted.specifier.contains(installed, prereleases=True):
        print(f"{wanted.name}: wanted {wanted.specifier}, found {installed or 'nothing'}")
        complete = False
sys.exit(not complete)
PYTHON
}
