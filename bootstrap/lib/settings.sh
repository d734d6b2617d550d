# shellcheck shell=bash
# The settings of a node: keys, types, defaults, and where they are read from.

# KEY -> type. An unknown key is rejected, so that a typing error is reported.
declare -rA SETTING_KINDS=(
  [TRN_NODE_ROLE]=role
  [TRN_USER]=user
  [TRN_JOBS_USER]=account
  [TRN_USERS]=users
  [TRN_DIRECTORY]=yesno
  [TRN_JOB_ROLE]=role_arn
  [TRN_REGION]=region
  [TRN_NEURON_SDK]=version
  [TRN_NEURON_DKMS]=version
  [TRN_NEURON_COLLECTIVES]=version
  [TRN_NEURON_RUNTIME]=version
  [TRN_NEURON_TOOLS]=version
  [TRN_NEURON_APT_URL]=url
  [TRN_NEURON_YUM_URL]=url
  [TRN_NEURON_KEY_URL]=url
  [TRN_NEURON_KEY_FINGERPRINT]=fingerprint
  [TRN_NEURON_DEVICES_EXPECTED]=count
  [TRN_EFA_EXPECTED]=count
  [TRN_DEVICES]=on_error
  [TRN_DEVICE_COUNTERS]=counters
  [TRN_EFA_INSTALLER]=version
  [TRN_EFA_URL]=url
  [TRN_EFA_KEY_FINGERPRINT]=fingerprint
  [TRN_MOUNTS]=paths
  [TRN_MOUNT_SOURCES]=sources
  [TRN_SLURM_BIN]=path
  [TRN_METRICS_GROUP]=path
  [TRN_AGENT_URL]=url
  [TRN_AGENT_VERSION]=version
  [TRN_AGENT_SHA]=sha256
  [TRN_AGENT_KEY_FINGERPRINT]=fingerprint
  [TRN_OS_PACKAGES]=packages
  [TRN_PYTHON]=python
  [TRN_VENV]=path
  [TRN_VENV_SHARED]=yesno
  [TRN_VENV_WAIT]=count
  [TRN_NEURON_CC]=version
  [TRN_TORCH_NEURONX]=version
  [TRN_PIP_EXTRA]=requirements
  [TRN_PIP_LINES]=lines
  [TRN_PIP_INDEX_URL]=url
  [TRN_NEURON_PIP_URL]=url
  [TRN_LOG]=path
  [TRN_STATE_DIR]=path
  [TRN_RETRY_DELAY]=count
  [TRN_LOCK_WAIT]=count
  [TRN_ON_FAILURE]=outcome
)

declare -rA SETTING_DEFAULTS=(
  [TRN_NEURON_APT_URL]=https://apt.repos.neuron.amazonaws.com
  [TRN_NEURON_YUM_URL]=https://yum.repos.neuron.amazonaws.com
  [TRN_NEURON_PIP_URL]=https://pip.repos.neuron.amazonaws.com
  [TRN_NEURON_KEY_URL]=https://apt.repos.neuron.amazonaws.com/GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB
  # "Amazon AWS Neuron <neuron-maintainers@amazon.com>", the key that signs both the apt and the yum repository
  [TRN_NEURON_KEY_FINGERPRINT]=00FA2C1079260870A76D2C285749CAD8646D9185
  [TRN_EFA_URL]=https://efa-installer.amazonaws.com
  # published in the EC2 user guide, "Get started with EFA"
  [TRN_EFA_KEY_FINGERPRINT]=4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC
  [TRN_AGENT_URL]=https://amazoncloudwatch-agent.s3.amazonaws.com
  # published in the CloudWatch user guide, "Verifying the signature of the CloudWatch agent package"
  [TRN_AGENT_KEY_FINGERPRINT]=937616F3450B7D806CBD9725D58167303B789C72
  [TRN_NEURON_DEVICES_EXPECTED]=0
  [TRN_EFA_EXPECTED]=0
  [TRN_DEVICES]=replace
  [TRN_PYTHON]=python3
  [TRN_DIRECTORY]=no
  [TRN_VENV_SHARED]=yes
  [TRN_VENV_WAIT]=1500
  [TRN_LOG]=/var/log/trn-bootstrap.log
  [TRN_STATE_DIR]=/var/lib/trn-bootstrap
  [TRN_RETRY_DELAY]=3
  [TRN_LOCK_WAIT]=900
  [TRN_ON_FAILURE]=fail
)

# shellcheck disable=SC2016 # nothing expands in a pattern
# TYPE -> pattern, and a description for messages. An empty value is allowed where there is no default.
declare -rA KIND_PATTERNS=(
  [role]='^(head|compute|cpu|login|standalone|image)$'
  [user]='^[a-z_][a-z0-9_.-]{0,31}$'
  [account]='^[a-z_][a-z0-9_.-]{0,31}:[0-9]{4,5}$'
  [users]='^[a-z_][a-z0-9_.-]{0,31}:[0-9]{4,5}( [a-z_][a-z0-9_.-]{0,31}:[0-9]{4,5})*$'
  [version]='^[0-9][0-9A-Za-z.+~_-]*$'
  [url]='^(https?|file)://[A-Za-z0-9._~:/?#@!&+,;=%-]+$'
  [fingerprint]='^[0-9A-F]{40}$'
  [sha256]='^[0-9a-f]{64}$'
  [count]='^[0-9]{1,4}$'
  [path]='^/?[A-Za-z0-9._@+-]+(/[A-Za-z0-9._@+-]+)*$'
  [paths]='^(/[A-Za-z0-9._@+-]+)+( (/[A-Za-z0-9._@+-]+)+)*$'
  [sources]='^((efs:fs-[0-9a-f]{8,17}|fsx:[a-z0-9.-]+:[a-z0-9]+):(/[A-Za-z0-9._@+-]+)+( |$))+$'
  [packages]='^[A-Za-z0-9][A-Za-z0-9.+_-]*( [A-Za-z0-9][A-Za-z0-9.+_-]*)*$'
  [requirements]='^[A-Za-z0-9][]A-Za-z0-9._<>=!~,*+[-]*( [A-Za-z0-9][]A-Za-z0-9._<>=!~,*+[-]*)*$'
  [lines]='^([A-Za-z0-9]|--(extra-index-url|find-links)=https?://)[^|$`\\[:cntrl:]]*(\|([A-Za-z0-9]|--(extra-index-url|find-links)=https?://)[^|$`\\[:cntrl:]]*)*$'
  [python]='^python3([.][0-9]{1,2})?$'
  [yesno]='^(yes|no)$'
  [role_arn]='^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]+$'
  [region]='^[a-z]{2}(-[a-z]+)+-[0-9]$'
  [outcome]='^(fail|report)$'
  [on_error]='^(tell|replace)$'
  [counters]='^[a-z_]{1,60}(,[a-z_]{1,60})*$'
)
declare -rA KIND_DESCRIPTIONS=(
  [role]='head, compute, cpu, login, standalone or image'
  [user]='a user name such as ubuntu'
  [account]='NAME:UID'
  [users]='NAME:UID, separated by one space'
  [version]='a version such as 2.31.13.0'
  [url]='an https, http or file URL without spaces'
  [fingerprint]='40 upper-case hexadecimal digits without spaces'
  [sha256]='64 lower-case hexadecimal digits'
  [count]='a whole number'
  [path]='a path without spaces or quotes'
  [paths]='absolute paths separated by one space'
  [sources]='efs:FILE-SYSTEM-ID:PATH or fsx:DNS-NAME:MOUNT-NAME:PATH, separated by one space'
  [packages]='package names separated by one space'
  [requirements]='pip requirements separated by one space (no options, no spaces inside one)'
  [lines]='pip requirements, or --extra-index-url=URL, separated by |'
  [python]='an interpreter such as python3.12'
  [yesno]='yes or no'
  [role_arn]='the ARN of a role'
  [region]='a region such as us-east-1'
  [outcome]='fail or report'
  [on_error]='tell or replace'
  [counters]='names of files separated by commas'
)

settings_fail() {
  report "trn-bootstrap: $1"
  exit 1
}

# setting_put KEY VALUE WHERE
setting_put() {
  local key="$1" value="$2" where="$3" kind
  [[ ${key} =~ ^[A-Z_]+$ && -n ${SETTING_KINDS[${key}]:-} ]] ||
    settings_fail "${where}: unknown key '${key}'; the keys are listed in README.md: ${!SETTING_KINDS[*]}"
  kind="${SETTING_KINDS[${key}]}"
  if [[ -z ${value} ]]; then
    value="${SETTING_DEFAULTS[${key}]:-}" # an empty value means the default
  fi
  [[ -z ${value} || ${value} =~ ${KIND_PATTERNS[${kind}]} ]] ||
    settings_fail "${where}: ${key}='${value}' is not ${KIND_DESCRIPTIONS[${kind}]}"
  printf -v "${key}" '%s' "${value}"
}

# Lines of KEY=value or KEY='value'; blank lines and lines starting with # are skipped. The file is parsed, never
# executed.
settings_read_file() {
  local file="$1" line number=0
  while IFS= read -r line || [[ -n ${line} ]]; do
    number=$((number + 1))
    [[ ${line} =~ ^[[:space:]]*(#.*)?$ ]] && continue
    if [[ ${line} =~ ^([A-Z_]+)=\'([^\']*)\'$ || ${line} =~ ^([A-Z_]+)=([^[:space:]\'\"\`\$\\]*)$ ]]; then
      setting_put "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${file##*/} line ${number}"
    else
      settings_fail "${file##*/} line ${number}: expected KEY='value', got: ${line}"
    fi
  done <"${file}"
}

settings_load() {
  local file="$1" argument key
  shift
  for key in "${!SETTING_KINDS[@]}"; do
    setting_put "${key}" "${SETTING_DEFAULTS[${key}]:-}" defaults
  done
  [[ -r ${file} ]] || settings_fail "${file} is missing; the deployment renders it next to configure-node.sh"
  settings_read_file "${file}"
  for argument in "$@"; do
    [[ ${argument} == *=* ]] || settings_fail "argument '${argument}' is not KEY=VALUE"
    setting_put "${argument%%=*}" "${argument#*=}" argument
  done
  settings_role
}

# ParallelCluster names the node's type HeadNode, ComputeFleet or LoginNode.
settings_role() {
  local config="/etc/parallelcluster/cfnconfig" type=""
  [[ -z ${TRN_NODE_ROLE} ]] || return 0
  [[ -r ${config} ]] ||
    settings_fail "the node's role is unknown: ${config} does not exist. Set TRN_NODE_ROLE=standalone (or head, compute, login)"
  type="$(sed -n "s/^cfn_node_type=['\"]\{0,1\}\([A-Za-z]*\).*/\1/p" "${config}")"
  case "${type}" in
    HeadNode) TRN_NODE_ROLE="head" ;;
    ComputeFleet) TRN_NODE_ROLE="compute" ;;
    LoginNode) TRN_NODE_ROLE="login" ;;
    *) settings_fail "${config}: cfn_node_type='${type}' is not HeadNode, ComputeFleet or LoginNode" ;;
  esac
}
