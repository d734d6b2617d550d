# shellcheck shell=bash
# Signing keys: downloaded, compared with the expected fingerprint, kept in a private keyring.

# With its own home: the root user's keyring is not used, and HOME may be unset.
gpg_private() {
  [[ -d ${WORK}/gnupg ]] || install -d -m 0700 "${WORK}/gnupg"
  GNUPGHOME="${WORK}/gnupg" gpg --batch --no-tty --quiet "$@"
}

# fetch_key URL FINGERPRINT: imports the key at URL into the private keyring.
fetch_key() {
  local url="$1" wanted="$2" file="${WORK}/key.asc" listing found
  download "${url}" "${file}"
  listing="$(gpg_private --show-keys --with-colons --fingerprint "${file}")" ||
    die "${url} is not an OpenPGP key" "Check the URL; the response may come from a proxy or a sign-in page"
  found="$(awk -F: '$1 == "pub" { primary = 1 } $1 == "fpr" && primary { print $10; primary = 0 }' <<<"${listing}")"
  [[ ${found} == "${wanted}" ]] ||
    die "the key at ${url} has fingerprint ${found//$'\n'/ }, expected ${wanted}" \
      "Do not continue unless the vendor announced a new key; then set the fingerprint in node.env"
  if [[ $(awk -F: '$1 == "pub" { print $2 }' <<<"${listing}") == e ]]; then
    die "the key at ${url} (${wanted}) has expired" "The copy is old: the vendor renews it under the same fingerprint"
  fi
  gpg_private --import "${file}"
}

# verify_sha256 FILE WANTED: nothing is checked where WANTED is empty.
verify_sha256() {
  local file="$1" wanted="$2" found
  found="$(sha256sum <"${file}" | cut -d ' ' -f 1)"
  [[ -z ${wanted} || ${found} == "${wanted}" ]] ||
    die "${file##*/} has SHA-256 ${found}, expected ${wanted}" \
      "The download is damaged, or the file at this address was replaced; it was not run. Try again, and check the mirror"
}

# verify_signature SIGNATURE FILE FINGERPRINT
verify_signature() {
  local signature="$1" file="$2" wanted="$3" status
  status="$(gpg_private --status-fd 1 --verify "${signature}" "${file}")" || status=""
  grep -Eq "^\[GNUPG:\] VALIDSIG .*${wanted}\$" <<<"${status}" ||
    die "${file##*/} does not carry a valid signature of key ${wanted}" \
      "The download is damaged or was tampered with; it was not run. Try again, and check its URL in node.env"
}
