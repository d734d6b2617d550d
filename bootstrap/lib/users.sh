# shellcheck shell=bash
# Accounts of the cluster's users: the same number on every node, no password, no sudo.

step_users() {
  local user home known="${TRN_STATE_DIR}/users"
  local -a users=() mounts=()
  read -r -a users <<<"${TRN_USERS}"
  users_remove "${known}"
  for user in "${users[@]}"; do
    users_add "${user%%:*}" "${user#*:}"
  done
  if ((${#users[@]} > 0)); then printf '%s\n' "${users[@]%%:*}" >"${known}"; else rm -f "${known}"; fi
  if [[ ${TRN_SEVERAL_USERS} != yes ]]; then log "one user"; fi
  [[ ${TRN_SEVERAL_USERS} == yes && ${TRN_NODE_ROLE} == head ]] || return 0
  # Everyone may make a folder there; with the sticky bit, only its owner can remove it.
  read -r -a mounts <<<"${TRN_MOUNTS}"
  if ((${#mounts[@]} > 0)); then
    roots_folder "${mounts[0]}/trn-users"
    chmod 1777 "${mounts[0]}/trn-users"
  fi
  # They use the virtual environment of TRN_USER: its home can be passed through, and not be listed.
  home="$(getent passwd "${TRN_USER}" | cut -d: -f6)" || true
  if [[ -n ${home} && -n ${TRN_VENV} && ${TRN_VENV} != /* ]]; then
    chmod o+x "${home}"
  fi
}

# roots_folder FOLDER: make it. On a file system that everyone may write to, a user may have put a folder or a link there.
roots_folder() {
  mkdir "$1" || [[ "$(stat -c '%F of %U' "$1")" == "directory of root" ]] ||
    die "$1 is not a folder of root, but a $(stat -c '%F of %U' "$1")" "Move it away, then deploy again or run configure-node.sh again"
}

# users_add NAME UID
users_add() {
  local name="$1" uid="$2" found home make=--create-home
  found="$(id -u "${name}" 2>/dev/null)" || found=""
  if [[ -z ${found} ]]; then
    ! found="$(getent passwd "${uid}" | cut -d: -f1)" || [[ -z ${found} ]] ||
      die "uid ${uid} of user ${name} belongs to ${found} on this node" "Give ${name} another uid (users)"
    getent group "${name}" >/dev/null || groupadd --gid "${uid}" "${name}"
    # /home is shared: the head node's, or a file system there
    if [[ ${TRN_NODE_ROLE} != head ]] && mountpoint -q /home; then make=--no-create-home; fi
    useradd --uid "${uid}" --gid "${name}" --shell /bin/bash "${make}" "${name}"
    if [[ ${make} == --create-home ]]; then
      home="$(getent passwd "${name}" | cut -d: -f6)"
      chmod 0700 "${home}"
    fi
    changed "added user ${name} (${uid})"
  elif [[ ${found} != "${uid}" ]]; then
    die "user ${name} has uid ${found} on this node, and not ${uid}" "Write uid: ${found}, or give another name (users)"
  elif [[ "$(getent passwd "${name}")" == *:/usr/sbin/nologin ]]; then # closed by users_remove
    usermod --expiredate "" --shell /bin/bash "${name}"
    changed "opened the account of user ${name}"
  fi
}

# users_remove FILE: accounts that were added here and are no longer wanted. Their files stay.
users_remove() {
  local name
  [[ -f $1 ]] || return 0
  while read -r name; do
    [[ " ${TRN_USERS}" != *" ${name}:"* ]] || continue
    # it fails while something of that user runs: then no one can become that user any more
    userdel "${name}" || usermod --lock --expiredate 1 --shell /usr/sbin/nologin "${name}" || continue
    changed "removed user ${name}"
  done <"$1"
}
