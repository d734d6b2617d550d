# shellcheck shell=bash
# Ubuntu: apt and dpkg.

readonly APT_SOURCE=/etc/apt/sources.list.d/neuron.list
readonly APT_KEYRING=/etc/apt/keyrings/neuron.gpg
readonly APT_PIN=/etc/apt/preferences.d/trn-neuron

# unattended-upgrades holds the locks in the first minutes after boot. apt can wait for dpkg's lock, but not
# for the lock of its package lists.
apt_wait_for_locks() {
  python3 -I - "${TRN_LOCK_WAIT}" <<'PYTHON' || die "another package manager holds apt's locks for ${TRN_LOCK_WAIT} s" \
    "To see which process: lsof /var/lib/dpkg/lock-frontend /var/lib/apt/lists/lock"
import fcntl, sys, time

deadline = time.monotonic() + int(sys.argv[1])
for path in ("/var/lib/apt/lists/lock", "/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock"):
    while True:
        try:
            with open(path, "a") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() > deadline:
                print("still held:", path)
                sys.exit(1)
            time.sleep(1)
PYTHON
}

apt_get() {
  DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 UCF_FORCE_CONFFOLD=1 \
    apt-get -y -o "DPkg::Lock::Timeout=${TRN_LOCK_WAIT}" -o Acquire::Retries=3 \
    -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}

# A node that stops during an installation leaves half-configured packages, which make every later installation fail.
apt_repair() {
  [[ -z "$(dpkg --audit)" ]] || DEBIAN_FRONTEND=noninteractive dpkg --configure -a ||
    log "some packages are still not configured; the installation below reports which"
}

# An image's own Neuron source may have an expired key, which would fail the whole update: disable it first.
apt_refresh() {
  [[ -z "$(neuron_packages)" ]] || apt_disable_other_neuron_sources
  apt_wait_for_locks
  apt_repair
  retry "apt-get update" apt_get update || die "apt-get update failed" "Check the node's route to its package mirror"
}

apt_installed_version() {
  local state
  state="$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$1" 2>/dev/null)" || return 0
  [[ ${state} != "installed "* ]] || echo "${state#installed }"
}

# One attempt. apt-get update succeeds even where a mirror does not answer, and leaves old lists or none: for the next attempt they are
# read again.
apt_install() {
  apt_get install --no-install-recommends "$@" || {
    apt_get -o Acquire::Retries=0 update
    return 1
  }
}

# Packages of the distribution itself, whatever their version.
apt_install_plain() {
  local package
  local -a missing=()
  for package in "$@"; do
    [[ -n "$(apt_installed_version "${package}")" ]] || missing+=("${package}")
  done
  ((${#missing[@]} > 0)) || return 0
  apt_refresh
  retry "installation of ${missing[*]}" apt_install "${missing[@]}" ||
    die "cannot install ${missing[*]}" "The lines above show apt's output"
  changed "installed ${missing[*]}"
}

# apt refuses two different signed-by for one repository, and images with Neuron bring their own source file.
apt_disable_other_neuron_sources() {
  local file
  for file in /etc/apt/sources.list.d/*; do
    [[ ${file} == *.list || ${file} == *.sources ]] && [[ ${file} != "${APT_SOURCE}" ]] || continue
    if grep -q 'repos\.neuron\.amazonaws\.com' "${file}"; then
      mv "${file}" "${file}.replaced-by-trn"
      changed "renamed ${file} (it has the Neuron repository with another key file)"
    fi
  done
}

apt_add_neuron_repository() {
  apt_disable_other_neuron_sources
  fetch_key "${TRN_NEURON_KEY_URL}" "${TRN_NEURON_KEY_FINGERPRINT}"
  gpg_private --export "${TRN_NEURON_KEY_FINGERPRINT}" | write_file "${APT_KEYRING}" 0644
  write_file "${APT_SOURCE}" 0644 <<<"deb [signed-by=${APT_KEYRING}] ${TRN_NEURON_APT_URL} ${OS_CODENAME} main"
  apt_wait_for_locks
  # Only this source, and any problem with it is an error (by default apt only warns and uses old lists).
  retry "apt-get update of the Neuron repository" apt_get update \
    -o "Dir::Etc::sourcelist=${APT_SOURCE}" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 \
    -o APT::Update::Error-Mode=any ||
    die "the Neuron repository ${TRN_NEURON_APT_URL} (${OS_CODENAME}) cannot be read or its signature is not that of key ${TRN_NEURON_KEY_FINGERPRINT}" \
      "The lines above show apt's output; nothing was installed from it"
}

# Prints the repository's full version for PACKAGE at VERSION: 2.33.10.0 is published as 2.33.10.0-1a2b3c4d5.
apt_resolve() {
  local package="$1" version="$2" offered
  offered="$(apt-cache madison "${package}" | awk -F'|' '{ gsub(/ /, "", $2); print $2 }' | sort -Vru)"
  pick_version "${version}" "${offered}" ||
    die "${package} ${version} is not in ${TRN_NEURON_APT_URL} (${OS_CODENAME}); it offers: ${offered//$'\n'/ }" \
      "Choose a Neuron release whose packages are published for ${OS_ID} ${OS_VERSION}"
}

# apt_install_neuron PACKAGE=VERSION...
apt_install_neuron() {
  local pair full pins=""
  local -a exact=()
  apt_add_neuron_repository
  for pair in "$@"; do
    full="$(apt_resolve "${pair%%=*}" "${pair#*=}")"
    exact+=("${pair%%=*}=${full}")
    pins+="Package: ${pair%%=*}"$'\n'"Pin: version ${full}"$'\n'"Pin-Priority: 1001"$'\n\n'
  done
  # The pin and the hold keep unattended-upgrades and 'apt upgrade' from changing the version of a single package.
  write_file "${APT_PIN}" 0644 <<<"${pins%$'\n\n'}"
  apt_repair
  local -a install=(apt_get install --no-install-recommends --allow-downgrades --allow-change-held-packages)
  # Only the download is retried: building the driver takes minutes and would fail again.
  retry "download of ${exact[*]}" "${install[@]}" --download-only "${exact[@]}" ||
    die "apt cannot download ${exact[*]}, or the downloaded files do not match the signed index" \
      "The lines above show apt's output"
  "${install[@]}" "${exact[@]}" || die "apt cannot install ${exact[*]}" "$(driver_build_hint)"
  apt-mark hold "${exact[@]%%=*}"
  changed "installed and held ${exact[*]}"
}
