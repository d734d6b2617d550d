#!/usr/bin/env bash
# Fetches the node scripts named by its first argument and runs them.
#
#   entry.sh s3://BUCKET/PREFIX/SHA256.zip [KEY=VALUE ...]
#   entry.sh ssm://PARAMETER               [KEY=VALUE ...]   an SSM parameter that holds such an s3:// URL
#
# The zip file is named after its SHA-256: nothing else under that name is run, whoever wrote it.
#
# This file is FROZEN. ParallelCluster refuses an update that changes the head node's OnNodeConfigured script, so
# its S3 key must keep its content for as long as any cluster uses it. Everything that may change travels in the
# zip file; the KEY=VALUE arguments are handed on to configure-node.sh (see README.md beside this file).
set -Eeuo pipefail

export HOME="${HOME:-/root}" # unset when ParallelCluster and cloud-init run a script
export PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:${PATH:-}"
umask 022

# On stdout, on stderr and in the system log: ParallelCluster drops the stderr of a head node's script, and a node that
# fails is replaced, with everything on its disk.
fail() {
  printf 'trn-bootstrap entry: %s\n' "$1"
  printf 'trn-bootstrap entry: %s\n' "$1" >&2
  logger -t trn-bootstrap -p user.err -- "entry: $1" 2>/dev/null || true
  exit 1
}

[[ ${EUID} -eq 0 ]] || fail "must run as root (it installs packages); use: sudo $0 $*"
location="${1:-}"
readonly SCRIPTS='^s3://[a-z0-9.-]+/(.+/)?[0-9a-f]{64}\.zip$'
[[ ${location} =~ ${SCRIPTS} || ${location} =~ ^ssm://[A-Za-z0-9_./-]+$ ]] ||
  fail "the first argument must be s3://BUCKET/PREFIX/SHA256.zip or ssm://PARAMETER, got '${location}'"
shift
for tool in aws python3 sha256sum; do
  command -v "${tool}" >/dev/null || fail "'${tool}' is not on this image; use a ParallelCluster or Neuron image"
done

# The region is not in the environment of a custom action; ParallelCluster writes it here.
if [[ -z ${AWS_DEFAULT_REGION:-} && -r /etc/parallelcluster/cfnconfig ]]; then
  region="$(sed -n "s/^cfn_region=['\"]\{0,1\}\([a-z0-9-]*\).*/\1/p" /etc/parallelcluster/cfnconfig)"
  [[ -z ${region} ]] || export AWS_DEFAULT_REGION="${region}"
fi

# attempt WHAT HINT COMMAND...: six attempts, each wait twice the last.
attempt() {
  local what="$1" hint="$2" try output delay="${TRN_ENTRY_RETRY_DELAY:-2}"
  shift 2
  for try in 1 2 3 4 5 6; do
    if output="$("$@" 2>&1)"; then return 0; fi
    [[ ${try} -lt 6 ]] || fail "cannot ${what} after ${try} attempts; ${hint}. The last response: ${output:-none}"
    printf 'trn-bootstrap entry: attempt %s to %s failed, next in %s s: %s\n' "${try}" "${what}" "${delay}" "${output}"
    sleep "${delay}"
    delay=$((delay * 2))
  done
}

# ParallelCluster also refuses other arguments for a head node: such a node asks where the scripts are now.
source_url="${location}"
if [[ ${location} == ssm://* ]]; then
  answer="$(mktemp)"
  trap 'rm -f "${answer}"' EXIT
  read_pointer() {
    aws ssm get-parameter --name "${location#ssm://}" --query Parameter.Value --output text >"${answer}"
  }
  attempt "read the SSM parameter ${location#ssm://}" \
    "the node's role needs ssm:GetParameter on it, and its subnet a route to SSM" read_pointer
  source_url="$(<"${answer}")"
  rm -f "${answer}"
  trap - EXIT
  [[ ${source_url} =~ ${SCRIPTS} ]] ||
    fail "the SSM parameter ${location#ssm://} must hold s3://BUCKET/PREFIX/SHA256.zip, it holds '${source_url}'"
fi

base="${TRN_BOOTSTRAP_DIR:-/opt/trn-bootstrap}"
name="$(basename "${source_url}" .zip)"
target="${base}/${name}"
mkdir -p "${base}"

if [[ ! -x ${target}/configure-node.sh ]]; then
  staging="$(mktemp -d "${base}/.staging.XXXXXX")"
  trap 'rm -rf "${staging}"' EXIT
  attempt "download ${source_url}" \
    "the node's role needs s3:GetObject on it, and its subnet a route to S3" \
    aws s3 cp --only-show-errors "${source_url}" "${staging}/scripts.zip"
  digest="$(sha256sum <"${staging}/scripts.zip")"
  [[ ${digest%% *} == "${name}" ]] ||
    fail "${source_url} is not the file it is named after (its SHA-256 is ${digest%% *}); deploy the stack again"
  python3 -m zipfile -e "${staging}/scripts.zip" "${staging}/tree" ||
    fail "${source_url} is not a readable zip file"
  [[ -f ${staging}/tree/configure-node.sh ]] || fail "${source_url} holds no configure-node.sh"
  chmod -R u+rwX,go+rX,go-w "${staging}/tree"
  chmod 0755 "${staging}/tree/configure-node.sh"
  rm -rf "${target}"
  mv "${staging}/tree" "${target}"
  rm -rf "${staging}"
  trap - EXIT
fi
ln -sfn "${name}" "${base}/current"
exec "${target}/configure-node.sh" "$@"
