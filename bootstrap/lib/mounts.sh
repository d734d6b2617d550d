# shellcheck shell=bash
# Mounts the shared file systems where no service does it: on AWS PCS. ParallelCluster mounts them itself.

step_mounts() {
  local source kind place what options
  local -a sources=()
  read -r -a sources <<<"${TRN_MOUNT_SOURCES}"
  ((${#sources[@]} > 0)) || {
    log "no file system to mount"
    return 0
  }
  for source in "${sources[@]}"; do
    kind="${source%%:*}" place="${source##*:}"
    what="${source#*:}"
    what="${what%:*}"
    case "${kind}" in
      # TLS and the instance's role: the file system's policy accepts nothing else
      efs) what="${what}:/" options=_netdev,noresvport,tls,iam ;;
      *) kind=lustre what="${what%:*}@tcp:/${what##*:}" options=_netdev,relatime,flock ;;
    esac
    grep -q "^[^#]* ${place} " /etc/fstab || printf '%s %s %s %s 0 0\n' "${what}" "${place}" "${kind}" "${options}" >>/etc/fstab
    mkdir -p "${place}"
    if ! mountpoint -q "${place}"; then
      [[ ${place} != /home ]] || cp -a /home "${WORK}/homes"
      retry "mounting ${what} at ${place}" mount "${place}" ||
        die "${what} cannot be mounted at ${place}" \
          "Check the file system's security group, its mount target in this zone, and that the image has the client of ${kind}"
      [[ ${place} != /home ]] || mounts_keep_homes "${WORK}/homes"
    fi
  done
}

# mounts_keep_homes FOLDER: the image's own homes, where the file system has none of that name. Nodes that start together copy the same
# files; the move is atomic.
mounts_keep_homes() {
  local home name staged
  for home in "$1"/*/; do
    [[ -d ${home} ]] || continue
    name="$(basename "${home}")"
    [[ ! -e /home/${name} ]] || continue
    staged="$(mktemp -d "/home/.${name}.XXXXXXXX")"
    cp -a "${home}." "${staged}"
    mv -T --no-clobber "${staged}" "/home/${name}" || true
    rm -rf "${staged}" # another node was first
    changed "kept the home of ${name}"
  done
}
