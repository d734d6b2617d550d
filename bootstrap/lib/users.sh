# shellcheck shell=bash
# Accounts of the cluster: that of its jobs, and those of its users. The same number on every node, no password, no sudo.

step_users() {
  local user home known="${TRN_STATE_DIR}/users" wanted="${TRN_JOBS_USER} ${TRN_USERS}"
  local -a users=()
  read -r -a users <<<"${wanted}"
  users_remove "${known}" "${wanted}"
  for user in "${users[@]}"; do
    users_add "${user%%:*}" "${user#*:}"
  done
  if ((${#users[@]} > 0)); then printf '%s\n' "${users[@]%%:*}" >"${known}"; else rm -f "${known}"; fi
  [[ -z ${TRN_JOBS_USER} ]] || users_refuse_logins "${TRN_JOBS_USER%%:*}"
  [[ ! ${TRN_NODE_ROLE} =~ ^(compute|cpu)$ ]] || users_refuse_ssh
  [[ ${TRN_NODE_ROLE} == head ]] || return 0
  users_folders
  # They use the virtual environment of TRN_USER: its home can be passed through, and not be listed.
  # shellcheck disable=SC2153 # not TRN_USERS
  home="$(getent passwd "${TRN_USER}" | cut -d: -f6)" || true
  if [[ -n ${wanted// /} && -n ${home} && -n ${TRN_VENV} && ${TRN_VENV} != /* ]]; then
    chmod o+x "${home}"
  fi
}

# users_refuse_logins NAME: nobody is that user but by root and by Slurm. A job can write this user's files, its keys for ssh among them.
users_refuse_logins() {
  [[ "$(getent shadow "$1" | cut -d: -f8)" != 1 ]] || return 0
  usermod --expiredate 1 "$1"
  changed "closed the account of $1 to logins"
}

# On nodes with jobs: who comes by ssh reaches another's job there, its loopback ports and its devices. Slurm opens a shell in one's own job.
users_refuse_ssh() {
  local file=/etc/pam.d/sshd rule="account required pam_succeed_if.so quiet_success uid < 1999"
  [[ -f ${file} ]] || return 0
  if ! grep -qxF "${rule}" "${file}"; then
    { printf '%s\n' "${rule}" && cat "${file}"; } | write_file "${file}" 0644
  fi
  [[ "$(sshd -T 2>/dev/null)" != *"usepam no"* ]] ||
    system_log "trn-bootstrap: sshd of this image does not ask PAM (UsePAM no), so users can reach nodes of others' jobs by ssh"
}

# The folders of jobs on the first of TRN_MOUNTS. Each belongs to one user; what is above belongs to root.
users_folders() {
  local user shared
  shared="${TRN_MOUNTS%% *}"
  [[ -n ${shared} ]] || return 0
  [[ -z ${TRN_JOBS_USER} ]] || users_folder "${shared}/trn" "${TRN_JOBS_USER%%:*}" 0755
  [[ -n ${TRN_USERS} || ${TRN_DIRECTORY} == yes ]] || return 0
  roots_folder "${shared}/trn-users"
  # Those of a directory are not known here, so that everyone may make a folder: with the sticky bit, only its owner can remove it.
  if [[ ${TRN_DIRECTORY} == yes ]]; then chmod 1777 "${shared}/trn-users"; else chmod 0755 "${shared}/trn-users"; fi
  for user in ${TRN_USERS}; do
    users_folder "${shared}/trn-users/${user%%:*}" "${user%%:*}" 0700
  done
}

# users_folder FOLDER USER MODE: what is there stays, whoever owns it.
users_folder() {
  if [[ ! -e $1 && ! -L $1 ]]; then
    roots_folder "$1"
    chown "$2:" "$1"
    chmod "$3" "$1"
    changed "made $1 for $2"
  elif [[ "$(stat -c '%F of %U' "$1")" != "directory of $2" ]]; then
    log "$1 is not a folder of $2, but a $(stat -c '%F of %U' "$1"): jobs of $2 are refused until an administrator moves it, or gives it to $2"
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
      die "uid ${uid} of user ${name} belongs to ${found} on this node" \
        "Give ${name} another uid (users), or for ${TRN_JOBS_USER%%:*} use an image that leaves ${TRN_JOBS_USER#*:} free"
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

# users_remove FILE WANTED: accounts that were added here and are no longer wanted. Their files stay.
users_remove() {
  local name
  [[ -f $1 ]] || return 0
  while read -r name; do
    [[ " $2" != *" ${name}:"* ]] || continue
    # it fails while something of that user runs: then no one can become that user any more
    userdel "${name}" || usermod --lock --expiredate 1 --shell /usr/sbin/nologin "${name}" || continue
    changed "removed user ${name}"
  done <"$1"
}
