# shellcheck shell=bash
# Amazon Linux 2023: dnf and rpm.

readonly DNF_REPO=/etc/yum.repos.d/neuron.repo
readonly DNF_KEY=/etc/pki/rpm-gpg/RPM-GPG-KEY-aws-neuron

# dnf waits for its lock itself.
dnf_run() { dnf -y --setopt=retries=3 --setopt=install_weak_deps=False "$@"; }

dnf_installed_version() {
  rpm -q --qf '%{VERSION}-%{RELEASE}\n' "$1" 2>/dev/null | grep -v 'not installed' | sort -V | tail -n 1 || true
}

dnf_install_plain() {
  local package
  local -a missing=()
  for package in "$@"; do
    [[ -n "$(dnf_installed_version "${package}")" ]] || missing+=("${package}")
  done
  ((${#missing[@]} > 0)) || return 0
  retry "installation of ${missing[*]}" dnf_run install "${missing[@]}" ||
    die "cannot install ${missing[*]}" "The lines above show dnf's output"
  changed "installed ${missing[*]}"
}

# The repository stays disabled (enabled=0) and is enabled only in our own calls, so that 'dnf upgrade' does not
# upgrade a single Neuron package; this needs no plug-in.
dnf_add_neuron_repository() {
  fetch_key "${TRN_NEURON_KEY_URL}" "${TRN_NEURON_KEY_FINGERPRINT}"
  gpg_private --armor --export "${TRN_NEURON_KEY_FINGERPRINT}" | write_file "${DNF_KEY}" 0644
  rpm --import "${DNF_KEY}"
  write_file "${DNF_REPO}" 0644 <<REPO
[neuron]
name=AWS Neuron
baseurl=${TRN_NEURON_YUM_URL}
enabled=0
gpgcheck=1
gpgkey=file://${DNF_KEY}
metadata_expire=300
skip_if_unavailable=0
REPO
  retry "metadata of the Neuron repository" dnf_run --refresh --disablerepo='*' --enablerepo=neuron makecache ||
    die "the Neuron repository ${TRN_NEURON_YUM_URL} cannot be read" "The lines above show dnf's output"
}

# Prints the repository's full version-release for PACKAGE at VERSION: 2.33.10.0 is published as 2.33.10.0_1a2b3c4d5-1.
dnf_resolve() {
  local package="$1" version="$2" offered
  offered="$(dnf_run -q --disablerepo='*' --enablerepo=neuron repoquery --qf '%{version}-%{release}' "${package}" |
    sort -Vru)"
  pick_version "${version}" "${offered}" ||
    die "${package} ${version} is not in ${TRN_NEURON_YUM_URL}; it offers: ${offered//$'\n'/ }" \
      "Choose a Neuron release whose packages are published for ${OS_ID} ${OS_VERSION}"
}

# dnf_install_neuron PACKAGE=VERSION...
dnf_install_neuron() {
  local pair full installed
  local -a exact=() lower=()
  dnf_add_neuron_repository
  for pair in "$@"; do
    full="$(dnf_resolve "${pair%%=*}" "${pair#*=}")"
    installed="$(dnf_installed_version "${pair%%=*}")"
    if [[ -n ${installed} && ${installed} != "${full}" &&
      "$(printf '%s\n%s\n' "${installed}" "${full}" | sort -V | head -n 1)" == "${full}" ]]; then
      lower+=("${pair%%=*}-${full}")
    else
      exact+=("${pair%%=*}-${full}")
    fi
  done
  # Only the download is retried: building the driver takes minutes and would fail again.
  ((${#lower[@]} == 0)) || dnf_change downgrade "${lower[@]}"
  ((${#exact[@]} == 0)) || dnf_change install "${exact[@]}"
  changed "installed ${exact[*]} ${lower[*]}"
}

# dnf_change install|downgrade PACKAGE-VERSION...
dnf_change() {
  local verb="$1"
  shift
  retry "download of $*" dnf_run --enablerepo=neuron "${verb}" --downloadonly "$@" ||
    die "dnf cannot download $*, or the downloaded files are not signed with key ${TRN_NEURON_KEY_FINGERPRINT}" \
      "The lines above show dnf's output"
  dnf_run --enablerepo=neuron "${verb}" "$@" || die "dnf cannot ${verb} $*" "$(driver_build_hint)"
}
