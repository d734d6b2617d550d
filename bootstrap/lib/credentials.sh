# shellcheck shell=bash
# What jobs may do on AWS: a service of root gives them their own role (credentials.py). SDKs find it by variables, the same on all nodes.

readonly CREDENTIALS_PORT=418
readonly CREDENTIALS_FOLDER=/run/trn-credentials
readonly CREDENTIALS_UNIT=trn-credentials.service

step_credentials() {
  if [[ -z ${TRN_JOB_ROLE} ]]; then
    log "no role of jobs is known on this node"
    return 0
  fi
  write_file /opt/trn-credentials/credentials.py 0755 <"${LIB_DIR}/credentials.py"
  write_file "/etc/systemd/system/${CREDENTIALS_UNIT}" 0644 <<UNIT
[Unit]
Description=The role of jobs, for programs of this node's users (trainium-cdk)
After=network-online.target trn-metadata.service
Wants=network-online.target

[Service]
Environment=PATH=/usr/local/bin:/usr/bin:/bin AWS_REGION=$(credentials_region) AWS_DEFAULT_REGION=$(credentials_region)
ExecStart=/usr/bin/python3 -I /opt/trn-credentials/credentials.py ${TRN_JOB_ROLE} ${CREDENTIALS_FOLDER} ${CREDENTIALS_PORT}
RuntimeDirectory=${CREDENTIALS_FOLDER##*/}
Restart=always
RestartSec=5
MemoryMax=300M
NoNewPrivileges=yes
ProtectHome=yes
ProtectSystem=strict
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  systemctl enable "${CREDENTIALS_UNIT}"
  systemctl restart "${CREDENTIALS_UNIT}"
  # for programs of `trn`; and for shells of those who are no account of the image
  credentials_variables | tr '\n' '\0' | write_file /etc/trn-job-environment 0644
  write_file /etc/profile.d/trn-aws.sh 0644 <<PROFILE
# The role of jobs (written by trn-bootstrap).
if [ "\$(id -u)" -ge 1999 ]; then
$(credentials_variables | sed 's/^/  export /')
fi
PROFILE
}

# What programs find it by. The region is asked of the metadata service otherwise, which no job reaches.
credentials_variables() {
  printf '%s\n' "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:${CREDENTIALS_PORT}/" \
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=${CREDENTIALS_FOLDER}/token" \
    "AWS_REGION=$(credentials_region)" "AWS_DEFAULT_REGION=$(credentials_region)"
}

# ParallelCluster has written it; on AWS PCS it is an argument.
credentials_region() {
  if [[ -n ${TRN_REGION} ]]; then
    echo "${TRN_REGION}"
  elif [[ -r /etc/parallelcluster/cfnconfig ]]; then
    sed -n "s/^cfn_region=['\"]\{0,1\}\([a-z0-9-]*\).*/\1/p" /etc/parallelcluster/cfnconfig
  fi
}
