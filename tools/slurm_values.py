"""Write `catalog/data/slurm_values.yaml` from Slurm's own source: which values each release takes in slurm.conf.

    python -m tools.slurm_values CLONE
CLONE is a git clone of SchedMD/slurm with its release branches. Plug-ins are the folders below src/plugins. Words are what the functions
that are named here compare a value with. Bounds, and what happens with a value that is none of them, were read there and run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.catalogue import SLURM

TARGET = Path(__file__).parents[1] / "constructs/trainium_cdk/description/catalog/data/slurm_values.yaml"
READ, PROTOCOL, LIMITS, BACKFILL, SELECT = (
    "src/common/read_config.c",
    "src/common/slurm_protocol_defs.c",
    "src/common/slurm_rlimits_info.c",
    "src/plugins/sched/backfill/backfill.c",
    "src/common/slurm_selecttype_info.c",  # of 22.05
)
ANY_NONE = ".*none.*"
"""Slurm looks for `none` anywhere in these values (read_config.c)."""
TIME = r"\d+-\d+(:\d+){0,2}|\d+(:\d+){0,2}|-1|infinite|unlimited"
"""Minutes, minutes:seconds, hours:minutes:seconds, days-hours and so on (parse_time.c)."""
FORM = "minutes, 1-12:00:00 (days-hours:minutes:seconds) or INFINITE"
Entry = dict[str, Any]

PLUGINS: dict[str, tuple[str, Entry]] = {
    "AccountingStorageType": ("accounting_storage", {"pattern": ANY_NONE}),
    "AcctGatherEnergyType": ("acct_gather_energy", {"pattern": f"{ANY_NONE}|acct_gather_energy/rsmi", "list": True}),
    "AcctGatherFilesystemType": ("acct_gather_filesystem", {"pattern": ANY_NONE, "list": True}),
    "AcctGatherInterconnectType": ("acct_gather_interconnect", {"pattern": ANY_NONE, "list": True}),
    "AcctGatherProfileType": ("acct_gather_profile", {"pattern": ANY_NONE, "list": True}),
    "AuthAltTypes": ("auth", {"plain": True}),
    "AuthType": ("auth", {}),
    "BurstBufferType": ("burst_buffer", {"pattern": ANY_NONE}),
    "CliFilterPlugins": ("cli_filter", {"pattern": ANY_NONE, "plain": True, "outcome": "commands"}),
    "CredType": ("cred", {}),
    "HashPlugin": ("hash", {}),
    "JobAcctGatherType": ("jobacct_gather", {"pattern": ANY_NONE}),
    "JobCompType": ("jobcomp", {"pattern": ANY_NONE}),
    "JobContainerType": ("job_container", {"pattern": f"{ANY_NONE}|(job_container|namespace)/(linux|tmpfs)", "outcome": "nodes", "form": "job_container/tmpfs"}),
    "JobSubmitPlugins": ("job_submit", {"plain": True}),
    "MCSPlugin": ("mcs", {"pattern": ANY_NONE}),
    "MetricsType": ("metrics", {}),
    "MpiDefault": ("mpi", {"pattern": f"{ANY_NONE}|.*openmpi.*|(mpi/)?pmix_v\\d+", "plain": True, "outcome": "commands"}),
    "NamespaceType": ("namespace", {"pattern": ANY_NONE, "outcome": "nodes"}),
    "NodeFeaturesPlugins": ("node_features", {"plain": True}),
    "PreemptType": ("preempt", {"more": ["preempt/none"]}),
    "PrEpPlugins": ("prep", {"plain": True}),
    "PrioritySiteFactorPlugin": ("site_factor", {"pattern": ANY_NONE}),
    "PriorityType": ("priority", {}),
    "ProctrackType": ("proctrack", {"outcome": "nodes"}),
    "SchedulerType": ("sched", {}),
    "SelectType": ("select", {}),
    "SwitchType": ("switch", {"pattern": ANY_NONE}),
    "TLSType": ("tls", {}),
    "TopologyPlugin": ("topology", {"pattern": "(?i:(topology/)?(none|default))"}),
}  # fmt: skip
"""Parameter -> the folder of its plug-ins, and what its value may be in addition to them. plain: with or without `type/`, and several of them."""
ABSENT = {"accounting_storage/mysql"}
"""Plug-ins that the controller refuses (read_config.c: only in slurmdbd)."""


def compared(body: str) -> list[str]:
    """The words that C code compares a value with."""
    return list(dict.fromkeys(re.findall(r'xstr(?:n?casecmp|casestr)\(\s*\w+,\s*"([^"]+)"', body)))


def function(file: str, name: str) -> Callable[[Callable[[str], str]], list[str]]:
    """Words of a function."""
    return lambda read: compared(
        one(rf"^(?:extern|static|int|uint)[^\n;#]*\b_?{name}\([^;{{]*\)\s*\n\{{.*?^\}}", read(file))
    )


def between(file: str, first: str, last: str) -> Callable[[Callable[[str], str]], list[str]]:
    """Words of a part of a function."""
    return lambda read: compared(one(rf"{first},\s*hashtbl\).*?{last}", read(file)))


def one(pattern: str, text: str) -> str:
    """The only part of a text that a pattern finds."""
    found = re.search(pattern, text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"there is no {pattern}")
    return found[0]


LEVELS: Entry = {"words": function(PROTOCOL, "log_string2num"), "pattern": r"\d.*"}
RLIMITS: Entry = {
    "words": lambda read: [*re.findall(r'\{ RLIMIT_\w+,\s*"(\w+)"', read(LIMITS)), "ALL", "NONE"],
    "list": True,
    "case": True,
    "pattern": "RLIMIT_.*",
}
EXITS: Entry = {
    "pattern": r"[\[\d].*|special_exit",
    "list": True,
    "outcome": "ignored",
    "form": "exit codes, for example 1-5,9",
}
PARTS: Entry = {"list": True, "anywhere": True, "outcome": "ignored"}
VALUES: dict[str, dict[str, Entry]] = {
    "SlurmConf": {
        "AccountingStorageEnforce": {"words": function(READ, "validate_accounting_storage_enforce"), "list": True},
        "AccountingStoreFlags": {"words": between(READ, '"AccountingStoreFlags"', "xfree"), **PARTS},
        "AccountingStorageTRES": {
            "more": ["billing", "cpu", "energy", "mem", "node", "pages", "vmem"],
            "list": True,
            "pattern": "(gres|license|bb|fs|ic|interconnect)/.+",
        },
        "DebugFlags": {"words": function(READ, "debug_str2flags"), "list": True},
        "EnforcePartLimits": {"words": function(PROTOCOL, "parse_part_enforce_type")},
        "FirstJobId": {"least": 1},
        "HealthCheckNodeState": {"words": function(READ, "health_node_state"), "list": True, "outcome": "ignored"},
        "BcastExclude": {"pattern": "none|/.*", "list": True, "form": "absolute paths, or NONE"},
        "CpuFreqDef": {
            "more": [
                "conservative",
                "ondemand",
                "performance",
                "powersave",
                "schedutil",
                "userspace",
                "low",
                "medium",
                "high",
                "highm1",
            ],
            "pattern": r"\d.*",
            "outcome": "ignored",
        },
        "RequeueExit": EXITS,
        "RequeueExitHold": EXITS,
        "SlurmctldPort": {"pattern": r"[1-9]\d*(-\d+)?", "form": "a port, or a range as 6820-6823"},
        "SuspendExcStates": {
            "more": [
                "CLOUD",
                "DOWN",
                "DRAIN",
                "DYNAMIC_FUTURE",
                "DYNAMIC_NORM",
                "FAIL",
                "INVALID_REG",
                "MAINTENANCE",
                "NOT_RESPONDING",
                "PERFCTRS",
                "PLANNED",
                "RESERVED",
            ],
            "list": True,
            "outcome": "ignored",
        },
        "Licenses": {
            "pattern": r"[^\s:=,;]+([:=]\d+)?([,;]+[^\s:=,;]+([:=]\d+)?)*[,;]*|.*[(|].*",
            "form": "names with numbers, for example matlab:10,ansys:2",
        },
        "LogTimeFormat": {"words": between(READ, '"LogTimeFormat"', "xfree"), "anywhere": True, "outcome": "ignored"},
        "MaxArraySize": {"most": 4000001, "outcome": "ignored"},
        "MaxDBDMsgs": {"least": 10000},
        "MaxJobCount": {"least": 1},
        "MaxStepCount": {"least": 1},
        "MinJobAge": {"least": 2, "outcome": "ignored"},
        "PreemptExemptTime": {"pattern": TIME, "form": FORM},
        "PreemptMode": {"words": function(PROTOCOL, "preempt_mode_num"), "list": True},
        "PriorityCalcPeriod": {"pattern": rf"(?!0+$)({TIME})", "form": FORM},
        "PriorityDecayHalfLife": {"pattern": TIME, "form": FORM},
        "PriorityFlags": {"words": between(READ, '"PriorityFlags"', "xfree"), **PARTS},
        "PriorityMaxAge": {"pattern": TIME, "form": FORM},
        "PriorityUsageResetPeriod": {"words": between(READ, '"PriorityUsageResetPeriod"', "xfree")},
        "PrivateData": {"words": between(READ, '"PrivateData"', "xfree"), **PARTS},
        "PrologFlags": {"words": function(READ, "prolog_str2flags"), "list": True},
        "PropagatePrioProcess": {"most": 2},
        "PropagateResourceLimits": RLIMITS,
        "PropagateResourceLimitsExcept": RLIMITS,
        "SchedulerTimeSlice": {"least": 5, "outcome": "ignored"},
        "SelectTypeParameters": {"words": function(f"{READ} {SELECT}", "parse_select_type_param"), "list": True},
        "SlurmctldDebug": LEVELS,
        "SlurmctldSyslogDebug": LEVELS,
        "SlurmdDebug": LEVELS,
        "SlurmdSyslogDebug": LEVELS,
        "TaskPluginParam": {
            "words": lambda read: [
                word
                for word in between(READ, '"TaskPluginParam"', '"TaskEpilog"')(read)
                if word not in ("autobind=", "task/cgroup", "cons_tres")
            ],
            "list": True,
            "pattern": "autobind=(none|threads|cores|sockets)",
        },
    },
    "PartitionName": {
        "DefaultTime": {"pattern": TIME, "form": FORM},
        "MaxTime": {"pattern": TIME, "form": FORM},
        "OverSubscribe": {"more": ["NO", "EXCLUSIVE", "YES", "FORCE"], "pattern": "(YES|FORCE):.*"},
        "SelectTypeParameters": {"pattern": "CR_(Core|Socket).*", "form": "CR_Core or CR_Socket"},
        "PreemptMode": {"words": function(PROTOCOL, "preempt_mode_num"), "list": True, "outcome": "ignored"},
        "TRESBillingWeights": {
            "pattern": r"[^=]+=\d+(\.\d+)?[KMGTP]?",
            "list": True,
            "form": "weights, for example CPU=1.0,Mem=0.25G",
        },
        "Shared": {"more": ["NO", "EXCLUSIVE", "YES", "FORCE"], "pattern": "(YES|FORCE):.*"},
        "State": {"pattern": "(UP|DOWN|DRAIN|INACTIVE).*", "form": "UP, DOWN, DRAIN or INACTIVE"},
    },
}
_MODE = r"\b(requeue|cancel|suspend|on|off|cluster)\b"
PAIRS: list[Entry] = [
    {
        "when": {"PreemptMode": r".*\b(requeue|cancel|suspend|on|within|priority)\b.*", "PreemptType": "|preempt/none"},
        "reason": "it needs a PreemptType",
        "fix": "add {PreemptType: preempt/partition_prio}, or remove it",
    },
    {
        "when": {
            "PreemptType": "preempt/(qos|partition_prio)",
            "PreemptMode": r"(?!.*\b(requeue|cancel|suspend|on)\b).*",
        },
        "reason": "it needs a PreemptMode that stops jobs",
        "fix": "add {PreemptMode: REQUEUE}, or remove it",
    },
    {
        "when": {"PreemptMode": "suspend|on"},
        "reason": "SUSPEND needs GANG",
        "fix": "write SUSPEND,GANG",
    },
    {
        "when": {"PreemptMode": rf".*{_MODE}.*{_MODE}.*|(?=.*\bgang\b).*\b(within|priority)\b.*"},
        "reason": "these modes exclude each other",
        "fix": "write one of them, for example REQUEUE",
    },
    {
        "when": {"AccountingStorageTRES": r".*\b((gres|license|bb|ic)/|fs/(?!disk)).*"},
        "accounting": True,
        "reason": "only a cluster with accounting counts it",
        "fix": "add accounting, or remove it",
    },
    {
        "when": {"AccountingStorageEnforce": ".+"},
        "accounting": True,
        "outcome": "ignored",
        "reason": "there is no accounting, so nothing is enforced",
        "fix": "add accounting, or remove it",
    },
    {
        "when": {"PriorityWeightFairshare": "[1-9].*"},
        "accounting": True,
        "outcome": "ignored",
        "reason": "shares need accounting",
        "fix": "add accounting, or remove it",
    },
    {
        "when": {"PriorityWeightAge": "[1-9].*", "PriorityFlags": "(?!.*accrue_always).*"},
        "accounting": True,
        "outcome": "ignored",
        "reason": "without accounting it needs PriorityFlags=ACCRUE_ALWAYS",
        "fix": "add {PriorityFlags: ACCRUE_ALWAYS}, or remove it",
    },
    {
        "when": {"JobAcctGatherType": "(?!.*none).+", "AccountingStorageType": "|.*none.*"},
        "accounting": True,
        "outcome": "ignored",
        "reason": "there is no accounting that stores it",
        "fix": "add accounting, or remove it",
    },
    {
        "when": {"PriorityWeightTRES": ".*gres/.*", "AccountingStorageTRES": "(?!.*gres/).*"},
        "reason": "AccountingStorageTRES does not count this GRES",
        "fix": "add it to AccountingStorageTRES, or remove it",
    },
    *(
        {
            "when": {name: "(?!.*none).+", "PrologFlags": "(?!.*(contain|x11|runinjob)).*"},
            "reason": "it needs PrologFlags=Contain",
            "fix": "add {PrologFlags: Contain}, or remove it",
        }
        for name in ("JobContainerType", "NamespaceType")
    ),
    {
        "when": {"PrologFlags": "(?=.*nohold).*(contain|x11|runinjob).*"},
        "reason": "NoHold excludes Contain, RunInJob and X11",
        "fix": "remove NoHold",
    },
    {
        "when": {"PriorityDecayHalfLife": "0+", "PriorityUsageResetPeriod": ""},
        "reason": "usage would never become less",
        "fix": "add {PriorityUsageResetPeriod: MONTHLY}, or write another time",
    },
    {
        "when": {"MCSPlugin": "mcs/group", "MCSParameters": ""},
        "reason": "it needs MCSParameters",
        "fix": "add MCSParameters with the groups, or remove it",
    },
    {
        "when": {"MCSParameters": ".+", "MCSPlugin": ""},
        "reason": "it needs an MCSPlugin",
        "fix": "add {MCSPlugin: mcs/user}, or remove it",
    },
    {
        "when": {"SlurmSchedLogLevel": "[1-9].*", "SlurmSchedLogFile": ""},
        "reason": "it needs SlurmSchedLogFile",
        "fix": "add {SlurmSchedLogFile: /var/log/slurm_sched.log}, or remove it",
    },
    {
        "when": {"LaunchParameters": "(?=.*enable_nss_slurm).*disable_send_gids.*"},
        "reason": "enable_nss_slurm and disable_send_gids exclude each other",
        "fix": "remove one of them",
    },
    {
        "when": {"CommunicationParameters": "(?=.*disableipv4)(?!.*enableipv6).*"},
        "reason": "no protocol is left",
        "fix": "remove DisableIPv4",
    },
    {
        "when": {
            "SelectTypeParameters": r"(?=.*\bcr_cpu)(?=.*\bcr_one_task_per_core).*|.*\bcr_(cpu|core|socket|memory)\w*.*,cr_((cpu|core|socket)(_memory)?|memory)(,.*)?"
        },
        "reason": "these exclude each other",
        "fix": "write one of CR_CPU, CR_Core, CR_Socket and their forms with _Memory; CR_ONE_TASK_PER_CORE only with CR_Core",
    },
    {
        "when": {"AuthAltTypes": ".*jwt.*", "AuthAltParameters": "(?!.*(jwt_key|jwks)=).*"},
        "reason": "it needs a key",
        "fix": "add AuthAltParameters with jwt_key=FILE, or remove it",
    },
    {
        "when": {"AuthAltTypes": "(auth/)?jwt", "AuthAltParameters": ".*(jwt_key|jwks)=.*"},
        "outcome": "depends",
        "reason": "the file with the key must exist before the controller starts",
        "fix": "write the file in a custom image, or add the line by an update after it is there",
    },
    {
        "when": {"JobSubmitPlugins": r".*\blua\b.*"},
        "outcome": "depends",
        "reason": "job_submit.lua must be in the folder of slurm.conf before the controller starts",
        "fix": "write the file in a custom image, or add the line by an update after it is there",
    },
    {
        "when": {"JobCompLoc": "(?!/var/log/[^/]*$|/tmp/[^/]*$)/.*", "JobCompType": ".*filetxt"},
        "outcome": "depends",
        "reason": "the file's folder must exist before the controller starts",
        "fix": "write a file of /var/log, for example /var/log/slurm_jobcomp.log",
    },
    {
        "when": {"TopologyPlugin": "topology/(tree|block|ring)"},
        "outcome": "depends",
        "reason": "topology.conf must be in the folder of slurm.conf before the controller starts",
        "fix": "write the file in a custom image, or add the line by an update after it is there",
    },
    {
        "line": "PartitionName",
        "when": {"OverSubscribe": "force:0+|yes:[01]"},
        "outcome": "ignored",
        "reason": "it is not a number of jobs that share",
        "fix": "write FORCE:1 or YES:2 at least",
    },
    {
        "when": {"TaskPluginParam": r"(.*,)?(none|sockets|cores|threads),(.*,)?(none|sockets|cores|threads)(,.*)?"},
        "reason": "it names two units",
        "fix": "write one of sockets, cores and threads",
    },
    *(
        {
            "when": {f"{bound}MemPerCPU": ".+", f"{bound}MemPerNode": ".+"},
            "outcome": "ignored",
            "reason": f"{bound}MemPerNode is set, too",
            "fix": "remove one of them",
        }
        for bound in ("Def", "Max")
    ),
    {
        "line": "PartitionName",
        "when": {"AllowGroups": "(?!all$).+"},
        "outcome": "ignored",
        "reason": "a group that the nodes do not have has no members, and then nobody may submit",
        "fix": "name a group that every node has, or remove it",
    },
    *(
        {
            "line": "PartitionName",
            "when": {name: "(?!all$).+"},
            "accounting": True,
            "in": ["25.11", "26.05"],
            "reason": "without accounting there is no QOS",
            "fix": "add accounting, or remove it",
        }
        for name in ("QOS", "AllowQos")
    ),
    *(
        {
            "line": "PartitionName",
            "when": {name: "(?!all$).+"},
            "accounting": True,
            "in": ["22.05", "24.11", "25.05"],
            "outcome": "ignored",
            "reason": "without accounting there is no QOS",
            "fix": "add accounting, or remove it",
        }
        for name in ("QOS", "AllowQos")
    ),
    {
        "line": "PartitionName",
        "when": {"PreemptMode": ".*gang.*"},
        "outcome": "ignored",
        "reason": "GANG is for the whole cluster only",
        "fix": "remove GANG",
    },
]
"""What a parameter needs of others, or of the cluster: `when` all match (a parameter that is absent is empty), the first is wrong."""
BOUND = re.compile(r'sched_params,\s*"(bf_\w+)=.{0,400}?\(?\b\w+(?:\s*!= -1\)\s*&&\s*\(\w+)?\s*< (\d+)[^;]*?error\("Invalid SchedulerParameters \1', re.DOTALL)  # fmt: skip


def table(git: Callable[..., str]) -> dict[str, dict[str, Entry]]:
    """Line of slurm.conf -> parameter -> the values that each release takes."""

    def of(release: str) -> Callable[[str], str]:
        return lambda files: "".join(git("show", f"slurm-{release}:{file}", check=False) for file in files.split())

    found: dict[str, dict[str, Entry]] = {"SlurmConf": {}, "PartitionName": {}}
    for name, (folder, options) in PLUGINS.items():
        words = {release: plugins(git, release, folder, options) for release in SLURM}
        entry = {key: value for key, value in options.items() if key not in ("plain", "more")}
        if options.get("plain"):
            entry["list"] = True
        found["SlurmConf"][name] = {**joined(words), "case": True, **entry}
    for line, values in VALUES.items():
        for name, options in values.items():
            entry = {key: value for key, value in options.items() if key not in ("words", "more")}
            words = {
                release: [*(options["words"](of(release)) if "words" in options else ()), *options.get("more", ())]
                for release in SLURM
            }
            found[line][name] = {**joined(words), **entry}
    bounds = {release: dict(BOUND.findall(of(release)(BACKFILL))) for release in SLURM}
    options = {option: int(least) for option, least in bounds[SLURM[-1]].items()}
    found["SlurmConf"]["SchedulerParameters"] = {"options": options, "gone": ["max_job_bf"], "outcome": "ignored"}
    return {line: dict(sorted(entries.items())) for line, entries in found.items()}


def plugins(git: Callable[..., str], release: str, folder: str, options: Entry) -> list[str]:
    """The plug-ins of a kind, as slurm.conf names them."""
    listed = git("ls-tree", "-d", "--name-only", f"slurm-{release}:src/plugins/{folder}", check=False).split()
    names = [name for name in listed if name not in ("common", "tests") and f"{folder}/{name}" not in ABSENT]
    plain = names if options.get("plain") else []
    return sorted([*(f"{folder}/{name}" for name in names), *plain, *options.get("more", ())])


def joined(words: Mapping[str, Iterable[str]]) -> Entry:
    """The words of all releases, and for those that not all have, the releases."""
    every = list(dict.fromkeys(word for found in words.values() for word in found))
    some = {word: [r for r in SLURM if word in words[r]] for word in every if any(word not in words[r] for r in SLURM)}
    return {**({"words": every} if every else {}), **({"in": some} if some else {})}


def main(clone: str) -> None:
    """Write the table."""

    def git(*words: str, check: bool = True) -> str:
        return subprocess.run(["git", "-C", clone, *words], check=check, capture_output=True, text=True).stdout

    date = max(git("log", "-1", "--format=%cs", f"slurm-{release}").strip() for release in SLURM)
    lines = [
        "# Values of slurm.conf, by release of Slurm: python -m tools.slurm_values writes it from Slurm's source. Do not edit.",
        "# words, pattern: what a value, or each part of a list, may be (pattern: a regular expression). in: releases of a word that not all",
        "# have. case: capital letters count. anywhere: a part only has to contain a word. least, most: of a number. options: least number of",
        "# an option. gone: options that end the controller. form: what to write. pairs: what a parameter needs of others. outcome of another value: refused (the controller ends; the default), ignored,",
        "# commands (sbatch and srun end), nodes (slurmd ends), depends (on a file).",
        "# Not in it: what a build leaves out. ParallelCluster's and PCS's builds are not public; theirs is taken to have all plug-ins.",
        'source: "SchedMD/slurm, branches slurm-RELEASE: src/plugins, src/common/read_config.c, slurm_protocol_defs.c, slurm_rlimits_info.c"',
        f"date: {date}",
        "lines:",
    ]
    for line, entries in table(git).items():
        lines.append(f"  {line}:")
        lines += [f"    {name}: {json.dumps(entry)}" for name, entry in entries.items()]
    lines += ["pairs:", *(f"  - {json.dumps(pair)}" for pair in PAIRS)]
    TARGET.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
