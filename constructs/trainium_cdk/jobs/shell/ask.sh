# shellcheck shell=bash
# The beginning of each script that queries jobs. It has set: trn (the directory of jobs), cluster (its identity).
: "${trn:?}" "${cluster:?}"

# Every output line begins with a random mark: content of files and names of other jobs cannot imitate such a line.
mark=$(od -A n -N 12 -t x4 /dev/urandom | tr -d ' \n')
printf 'trn-mark %s\n' "$mark"
put() { printf '%s %s\n' "$mark" "$*"; }

# Reads the first line of a regular file, cut, into $line. Nothing else of it is read, and nothing but regular files.
line=''
first() { # file characters
  line=''
  if [ -f "$1" ]; then IFS= read -r -n "$2" line < "$1" || true; fi
} 2> /dev/null

# A number proves nothing: after a crash of its controller, or on a new cluster with the same file system, Slurm gives it
# to another job. `claims` has the jobs' own records, `<number>|<id>:<stage>`, which are compared with Slurm's response.
declare -A claims=()
numbers='' arrays=''
stages=()
claim() { # id
  local name number
  stages=()
  first "$trn/jobs/$1/cluster" 200
  if [ ! -f "$trn/jobs/$1/stages" ]; then return 0; fi
  local own=$line
  while [ "${#stages[@]}" -lt 3 ] && read -r -n 60 name number; do
    if [[ $name =~ ^(prepare|precompile|train)$ && $number =~ ^[1-9][0-9]{0,9}$ ]]; then
      stages+=("$name $number")
      if [ "${own:-$cluster}" = "$cluster" ]; then
        if [ "$name" = train ] && [ -f "$trn/jobs/$1/array" ]; then
          arrays+=${arrays:+,}$number
        else
          claims["$number|$1:$name"]=1
          numbers+=${numbers:+,}$number
        fi
      fi
    fi
  done < "$trn/jobs/$1/stages"
}

describe() { # id
  local job=$trn/jobs/$1 stage
  if [ ! -f "$job/stages" ]; then return 0; fi
  claim "$1"
  put "job $1"
  first "$job/summary.json" 4000
  put "json $line"
  put "submitted $(stat -c %Y "$job/digest" 2> /dev/null || true)"
  first "$job/cluster" 200
  put "cluster ${line:-$cluster}"
  for stage in ${stages[@]+"${stages[@]}"}; do
    put "stage $stage"
    first "$job/state/${stage% *}" 4000
    if [ -n "$line" ]; then put "state ${stage% *} $line"; fi
  done
  if [ -e "$job/cancelled" ]; then put cancelled; fi
  if [ -f "$job/array" ]; then describe_array; fi
}

# The members of an array, whose directory is $job: what each has last recorded.
describe_array() {
  local member
  first "$job/array" 4000
  put "array $line"
  for member in "$job"/[0-9]*/; do
    member=${member%/}
    first "$member/state/train" 4000
    if [ -n "$line" ]; then put "member ${member##*/} $line"; fi
    if [ -e "$member/cancelled" ]; then put "gone ${member##*/}"; fi
  done
}

# Runs squeue, with its output in $answer. A job that it has forgotten ("Invalid job id") is no error; no response means nothing.
ask() {
  answer=$(squeue -h -a "$@" 2>&1) && return
  case $answer in
    *'Invalid job id'*) answer='' ;;
    *)
      printf '%s\n' "$answer" >&2
      exit 5
      ;;
  esac
}

# What Slurm knows of the numbers in `claims`, in $answer.
queue() {
  answer=''
  if [ -n "$numbers" ]; then ask -t all -j "$numbers" -o "$mark queue %A|%T|%r|%N|%S|%e|%j|%k"; fi
}

# What Slurm knows of the members of the arrays in `arrays`, a line each.
tasks() {
  if [ -z "$arrays" ]; then return 0; fi
  local others=$answer
  ask -r -t all -j "$arrays" -o "$mark task %F|%K|%T|%r|%N|%S|%e|%j|%k"
  answer=${others:+$others$'\n'}$answer
}

# If a stage waits: the nodes that are down, with the reason, where ParallelCluster records what EC2 reported; those that PCS could not start,
# which it powers down; and the capacity blocks that are not active, whose nodes ParallelCluster reserves.
unavailable() {
  case $answer in
    *'|PENDING|'*)
      {
        sinfo -h -a -t down,drain,fail -o "$mark down %R|%H|%N|%E"
        sinfo -h -a -o "$mark down %R|%H|%N|%E" | grep -F '(Error Code: '
      } 2> /dev/null | head -n 50 || true
      scontrol -o show reservation 2> /dev/null |
        sed -n "s/^ReservationName=pcluster-\(cr-[0-9a-f]*\) .* Nodes=\([^ ]*\) .*/$mark block \1|\2/p" | head -n 50 || true
      ;;
  esac
}

# What a stage has last recorded, into the caller's how, begun, code, ended and why; name and job are the caller's, too.
recorded() {
  first "$job/state/${name##*:}" 4000
  read -r how begun code ended _ why _ <<< "$line"
}

# Whether a stage that began then has ended, and so long ago that Slurm would have noticed; a requeued one has begun later.
over() { # end, in seconds since 1970; begin, as Slurm prints it
  local began
  began=$(date -d "$2" +%s) && [ "$1" -ge "$began" ] && [ "$1" -lt "$(($(date +%s) - 30))" ]
}

# Tells Slurm's controller again what it forgot in a crash: that a job may begin, that it was cancelled, or that it has ended.
remind() {
  local number state reason started name job how begun code ended why known_begin reminded='' _
  while IFS='|' read -r number state reason _ started _ name _; do
    number=${number#"$mark queue "}
    if [ -z "${claims["$number|$name"]:-}" ]; then continue; fi
    job=$trn/jobs/${name%:*}
    if [ -e "$job/cancelled" ]; then
      case $state in
        PENDING | RUNNING | CONFIGURING | SUSPENDED) scancel --name="$name" "$number" && reminded=yes ;;
      esac
    elif [ "$state $reason" = 'PENDING launch failed requeued held' ]; then # by Slurm itself, for ever
      scontrol release "$number" && reminded=yes
    elif [ "$state $reason" = 'PENDING BeginTime' ]; then
      recorded
      # one that has begun is restarted by Slurm after a node's failure, which Slurm counts; one that has completed only
      # reports that
      known_begin=no
      if [ "$begun" = "$number" ] && [ "$how $code" != 'ended 0' ]; then
        if [[ " $(scontrol -o show job "$number") " != *' Restarts=0 '* ]]; then known_begin=yes; fi
      fi
      if [ "$known_begin" = no ]; then scontrol update JobId="$number" StartTime=now && reminded=yes; fi
    elif [ "$state" = RUNNING ] && recorded && [ "$how $begun" = "ended $number" ] && over "$ended" "$started"; then
      # for ever, if its node's last message came after the crash. Started again, as Slurm does with one that it misses, a stage that
      # has completed only reports that; one that must not run again is ended
      if [ "$code" = 0 ]; then scontrol update JobId="$number" Requeue=1; fi
      { [ "$why" != TIMEOUT ] && scontrol requeue "$number"; } || scancel --state=RUNNING --name="$name" "$number"
      reminded=yes
    fi
  done <<< "$answer" > /dev/null 2>&1
  if [ -n "$reminded" ]; then queue; fi
}

# All that is known of one job. The queue is read before the files: a stage that it reports as ended has written its state.
known() { # id
  claims=() numbers='' arrays=''
  claim "$1"
  queue
  remind
  tasks
  if [ -n "$answer" ]; then printf '%s\n' "$answer"; fi
  unavailable
  describe "$1"
  if [ -n "$numbers" ]; then
    sacct -X -n -P -j "$numbers" --name="$1:prepare,$1:precompile,$1:train" \
      -o JobIDRaw,State,ExitCode,NodeList,Start,End,JobName 2> /dev/null | sed "s/^/$mark sacct /" || true
  fi
  put "free $(stat -f -c %a "$trn")"
}
