#!/usr/bin/env bash
# Proves on AWS that it works: deploys a small cluster, tests its nodes, trains, ends a node, updates, and removes everything.
#
#   examples/prove-on-aws.sh [slurm|pcs|eks [USD [JOB...]]]
#
# USD is the budget, 25 by default. The run ends one hour before its cluster, with all nodes and at list prices, has cost that.
# JOB is the training, as words of `trn submit`: it saves, and has 300 steps or more. Default: BERT-Large.
# Variables: REGION (us-east-1), TYPE and NODES (1 x trn1.2xlarge), LIMIT (time limit of each job: 2h), NAME (new in the account).
# You need `cdk bootstrap aws://ACCOUNT/REGION --app ""`; trn, cdk and aws on your PATH; and GNU timeout (macOS: brew install coreutils).
#
# Whatever fails, and after Ctrl-C, the cluster is destroyed. Only a lost machine leaves it. Its job then ends at the job's own
# limits, and its nodes ten minutes later. What stays costs about 19 USD a day with slurm, 58 with pcs and 10 with eks, at list
# prices of us-east-1 (of pcs two are not known: 1 USD an hour is assumed for each). Remove all of it from any other machine:
#
#   trn clusters                                                     # its name and region
#   trn destroy TrnPclusterStack-prove-11281430 --region us-east-1
set -euo pipefail

ENGINE=${1:-slurm} USD=${2:-25} REGION=${REGION:-us-east-1} TYPE=${TYPE:-trn1.2xlarge} NODES=${NODES:-1} LIMIT=${LIMIT:-2h}
JOB=("${@:3}")
[ ${#JOB[@]} -gt 0 ] || JOB=(bert-large --optimizer adamw --accumulation 2 --run-steps 600)
say() { echo "prove: $*" >&2; }
case $ENGINE in
  slurm) ID=TrnPclusterStack ;;
  pcs) ID=TrnPcsStack ;;
  eks) ID=TrnEksStack ;;
  *) say "unknown engine $ENGINE. Choose one of slurm, pcs, eks" && exit 2 ;;
esac
for program in trn cdk aws timeout python3; do
  command -v "$program" >/dev/null || { say "$program is not on your PATH: the head of this script says what it needs" && exit 2; }
done
NAME=${NAME:-prove-$(date +%m%d%H%M)} # what is removed is only what this run has made
STACK=$ID-$NAME
mkdir "$NAME" && cd "$NAME"
unset TRN_CLUSTER TRN_TEAM TRN_CLUSTER_USER
export TRN_ENV=$PWD/prove.yaml TRN_STACK=$ID XDG_CONFIG_HOME=$PWD # your own `trn use` stays as it is

within() { # runs a command within what is left of the budget
  [ "$SECONDS" -lt "$END" ] || { say "the budget is used" && exit 1; }
  timeout --foreground -k 60 $((END - SECONDS)) "$@"
}
describe() { trn init prove.yaml --force --name "$NAME" --engine "$ENGINE" --instance-type "$TYPE" --region "$REGION" --nodes "$1"; }
submit() { within trn submit "$1" --nodes "$NODES" --max-usd "$MOST" --time-limit "$LIMIT" "${@:2}"; }
finish() { within trn status "$1" --wait || { trn logs "$1" --tail 20 && return 1; }; }
first_step() { # of the training's last attempt
  within trn logs "$TRAINING" --metrics | awk '/"record": "Start"/ { step = 0 }
    /"record": "Step"/ && !step && match($0, /"step": [0-9]+/) { step = substr($0, RSTART + 8, RLENGTH - 8) } END { print step + 0 }'
}

deploy() {
  within cdk deploy "$ID" --require-approval never
  for _ in {1..30}; do if within trn list; then break; else within sleep 20; fi; done # a new cluster may not answer at once
}
nccom() { JOB_ID=$(submit nccom) && finish "$JOB_ID" && within trn logs "$JOB_ID" --tail 5; }
train() {
  TRAINING=$(submit "${JOB[@]}")
  until within trn logs "$TRAINING" --metrics --tail 1 | grep -E '"step": [0-9]{3}' >/dev/null; do
    [[ $(within trn status "$TRAINING" --json) != *'"done": true'* ]] || { finish "$TRAINING" && say "it ended before step 100"; return 1; }
    within sleep 5
  done
}
resume() { # a node is ended as if it were broken; the training must go on from a checkpoint, and complete
  local before vpc node
  before=$(first_step)
  vpc=$(within aws cloudformation list-stack-resources --region "$REGION" --stack-name "$STACK" --output text \
    --query "StackResourceSummaries[?ResourceType=='AWS::EC2::VPC'].PhysicalResourceId")
  node=$(within aws ec2 describe-instances --region "$REGION" --output text --query 'Reservations[0].Instances[0].InstanceId' \
    --filters "Name=vpc-id,Values=$vpc" "Name=instance-type,Values=$TYPE" Name=instance-state-name,Values=running)
  within aws ec2 terminate-instances --region "$REGION" --instance-ids "$node" >/dev/null
  finish "$TRAINING"
  [ "$(first_step)" -gt "$before" ] || { say "the training did not resume from a checkpoint" && return 1; }
}
work() { # a folder of one's own, with a package
  mkdir work
  echo 'requests==2.31.0' >work/requirements.txt
  echo 'from importlib.metadata import version; print("requests", version("requests"))' >work/own.py
  JOB_ID=$(submit work/own.py --workdir work --requirements work/requirements.txt)
  finish "$JOB_ID" && within trn logs "$JOB_ID" | grep 'requests 2.31.0'
}
read_back() { within trn list && within trn logs "$TRAINING" --metrics --tail 3 && within trn report "$TRAINING" --output report.html; }
update() { describe $((NODES + 1)) && within trn diff && deploy; } # one more node at most: nothing that runs is interrupted

STEPS="" CURRENT=check
step() {
  local began=$SECONDS
  CURRENT=$1 && say "$CURRENT, $SECONDS s after the start"
  "${@:2}"
  STEPS+="$CURRENT $((SECONDS - began)) s, "
}
destroy() {
  local code=$? removed="" began=$SECONDS
  trap '' HUP TERM
  trap 'say "$STACK may be left. Remove it: trn destroy $STACK --region $REGION" && exit 130' INT
  [ "$code" = 0 ] || { STEPS+="$CURRENT FAILED, " && say "$CURRENT has failed, see above; removing $STACK"; }
  for _ in {1..60}; do # a deployment that was interrupted goes on, and its stack cannot be deleted before it ends
    trn destroy --yes && removed=yes && break
    aws cloudformation describe-stacks --region "$REGION" --stack-name "$STACK" 2>&1 | grep -q 'does not exist' && break
    sleep 60
  done
  [ "$removed" ] || { code=1 && say "something may be left, see above: trn destroy $STACK --region $REGION"; }
  echo "| $(date -u +%F) | $ENGINE | $NODES x $TYPE | $REGION${AWS_ENDPOINT_URL:+ (not AWS)} | ${SDK:-} | ${JOB[0]} | $SECONDS |" \
    "$(awk -v hour="$FULL" -v s="$SECONDS" 'BEGIN { printf "%.2f", hour * s / 3600 }') | ${STEPS}remove $((SECONDS - began)) s |"
  exit "$code"
}

describe "$NODES"
read -r FULL IDLE < <(trn cost --json | python3 -c 'import json, sys
items = json.load(sys.stdin)["items"]
print(*(sum(1.0 if i[rate] is None else i[rate] for i in items) for rate in ("full", "idle")))')
read -r END MOST DAY LEAST < <(awk -v usd="$USD" -v full="$FULL" -v idle="$IDLE" 'BEGIN {
  print int(3600 * usd / full) - 3600, usd / 4, 24 * idle, int(3 * full) + 1 }')
[ "$END" -ge 7200 ] || { say "an hour costs up to $FULL USD, and the budget of $USD does not last for three. Give $LEAST" && exit 2; }
say "$STACK in $REGION: at most $USD USD; if this machine is lost, $DAY USD a day"
step check within trn check
trap destroy EXIT
trap 'exit 130' INT TERM
trap 'exec >>prove.log 2>&1; exit 129' HUP # the terminal is gone
step deploy deploy
SDK=$(trn show cluster | sed -n 's/.*"neuron_release": "\(.*\)".*/\1/p')
for part in nccom train resume work read_back update; do step "$part" "$part"; done
