# shellcheck shell=bash
# What each script that asks about jobs begins with. It has set: trn (the directory of jobs), cluster (its identity).
: "${trn:?}" "${cluster:?}"

# Every line of ours begins with a mark that nobody can guess: what a file or another's job name holds is no line of ours.
mark=$(od -A n -N 12 -t x4 /dev/urandom | tr -d ' \n')
printf 'trn-mark %s\n' "$mark"
put() { printf '%s %s\n' "$mark" "$*"; }

# The first line of a regular file, cut, in $line. Nothing else of it is read, and nothing that is no file.
line=''
first() { # file characters
  line=''
  if [ -f "$1" ]; then IFS= read -r -n "$2" line < "$1" || true; fi
} 2> /dev/null

# A number proves nothing: when its controller crashes, or the cluster is made anew on the same file system, Slurm gives
# it to another job. `claims` has what jobs say of themselves, `<number>|<id>:<stage>`; Slurm's own answer is compared with it.
declare -A claims=()
numbers=''
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
        claims["$number|$1:$name"]=1
        numbers+=${numbers:+,}$number
      fi
    fi
  done < "$trn/jobs/$1/stages"
}

tell() { # id
  local job=$trn/jobs/$1 stage
  if [ ! -f "$job/stages" ]; then return 0; fi
  claim "$1"
  put "job $1"
  first "$job/summary.json" 4000
  put "json $line"
  first "$job/cluster" 200
  put "cluster ${line:-$cluster}"
  for stage in ${stages[@]+"${stages[@]}"}; do
    put "stage $stage"
    first "$job/state/${stage% *}" 4000
    if [ -n "$line" ]; then put "state ${stage% *} $line"; fi
  done
  if [ -e "$job/cancelled" ]; then put cancelled; fi
}

# squeue's answer in $said. What it has forgotten ("Invalid job id") is no error; no answer says nothing of the job.
ask() {
  said=$(squeue -h -a "$@" 2>&1) && return
  case $said in
    *'Invalid job id'*) said='' ;;
    *)
      printf '%s\n' "$said" >&2
      exit 5
      ;;
  esac
}

# What Slurm knows of the numbers that were claimed, in $said.
queue() {
  said=''
  if [ -n "$numbers" ]; then ask -t all -j "$numbers" -o "$mark queue %A|%T|%r|%N|%S|%e|%j|%k"; fi
}

# What Slurm's controller forgets when it crashes is told it again: that a job may begin, or that it was cancelled.
remind() {
  local number state reason name job how begun code reminded='' _
  while IFS='|' read -r number state reason _ _ _ name _; do
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
      first "$job/state/${name##*:}" 100
      read -r how begun code _ <<< "$line"
      # one that has begun is started again after a node's failure, in its time; one that has completed only says so
      if [ "$begun" != "$number" ] || [ "$how $code" = 'ended 0' ]; then scontrol update JobId="$number" StartTime=now && reminded=yes; fi
    fi
  done <<< "$said" > /dev/null 2>&1
  if [ -n "$reminded" ]; then queue; fi
}

# All that is known of one job. The queue comes before the files: what it says has ended has written how.
known() { # id
  claims=() numbers=''
  claim "$1"
  queue
  remind
  if [ -n "$said" ]; then printf '%s\n' "$said"; fi
  tell "$1"
  if [ -n "$numbers" ]; then
    sacct -X -n -P -j "$numbers" --name="$1:prepare,$1:precompile,$1:train" \
      -o JobIDRaw,State,ExitCode,NodeList,Start,End,JobName 2> /dev/null | sed "s/^/$mark sacct /" || true
  fi
  put "free $(stat -f -c %a "$trn")"
}
