# shellcheck shell=bash
unset BASH_ENV # of this script alone, not of the jobs
if [[ $0 == /dev/fd/* && $(< "$0") == *': submitted to Slurm by the job'* ]]; then
  moment_count=0 moment_client=$PPID
  moment() {
    if ((BASH_SUBSHELL > 0)); then return 0; fi
    local phase='not begun'
    if [[ -n ${job:-} && -e $job/released ]]; then phase=released
    elif [[ -n ${job:-} && -e $job/stages ]]; then phase='written down'
    elif [[ -n ${job:-} && -e $job/stages.part ]]; then phase='taken by Slurm'
    elif [[ -n ${job:-} && -e $job ]]; then phase='writing files'
    fi
    printf '%s\n' "$phase" >> "$MOMENTS"
    moment_count=$((moment_count + 1))
    if ((moment_count != MOMENT)); then return 0; fi
    case $MOMENT_ACTION in
      kill-client) kill -KILL "$moment_client" ;;
      kill-both) kill -KILL "$moment_client" 0 ;;
      *)
        kill "-$MOMENT_ACTION" "$moment_client"
        # The client ends this script; where it cannot any more, the script goes on.
        if [[ $(trap -p TERM) != *"''"* ]]; then sleep 1200; fi
        ;;
    esac
  }
  set -o functrace
  trap moment DEBUG
fi
