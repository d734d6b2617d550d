"""kwok's configuration for nodes and pods, as text.

Nodes become Ready immediately and stay so. A pod on a node starts running immediately, until its annotations end
it::

    sandbox/ends-after: 5s       it succeeds after that time
    sandbox/exit-code: "1"       ... or fails, with that code

Pods that run for real (see `pods.py`) are excluded: kwok then only serves their logs, shells and ports.
"""

from __future__ import annotations

ENDS_AFTER = "sandbox/ends-after"
EXIT_CODE = "sandbox/exit-code"
RUN_BY_US = "volcano"
"""Pods of this scheduler are training jobs, which run for real if any do."""
RUN_LABEL = "trainium-cdk/job"
"""Pods with this label also run for real, with any scheduler: tasks of jobs on the system nodes."""

_NODE = """
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select(.type == "Ready") | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - {type: {{ .type | Quote }}, status: {{ .status | Quote }}, reason: {{ .reason | Quote }}, message: {{ .message | Quote }}, lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $now | Quote }}}
      {{ end }}
      addresses:
      - {type: InternalIP, address: {{ NodeIP | Quote }}}
      - {type: Hostname, address: {{ NodeName | Quote }}}
      daemonEndpoints: {kubeletEndpoint: {Port: {{ NodePort }}}}
      nodeInfo:
        {architecture: amd64, operatingSystem: linux, kubeletVersion: kwok, kubeProxyVersion: kwok, containerRuntimeVersion: kwok, kernelVersion: kwok, osImage: "", bootID: "", machineID: "", systemUUID: ""}
"""
"""Without it a node never becomes Ready (kwok has no default of its own since 0.8). Its lease says that it lives on."""

_CONDITIONS = """
      conditions:
      {{ range $type := list "PodReadyToStartContainers" "Initialized" "Ready" "ContainersReady" }}
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: {{ $type }}}
      {{ end }}"""

_NOT_OURS = f"""
    - {{key: .spec.schedulerName, operator: NotIn, values: [{RUN_BY_US}]}}
    - {{key: '.metadata.labels["{RUN_LABEL}"]', operator: DoesNotExist}}"""

_READY = """
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.podIP, operator: DoesNotExist}%(not_ours)s
  next:
    statusTemplate: |
      {{ $now := Now }}%(conditions)s
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        imageID: ""
        name: {{ .name | Quote }}
        ready: true
        started: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
      {{ with .spec.initContainers }}
      initContainerStatuses:
      {{ range . }}
      - image: {{ .image | Quote }}
        imageID: ""
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
      {{ end }}
      {{ end }}
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
      phase: Running
      startTime: {{ $now | Quote }}
"""

_END = """
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: %(name)s}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: '.metadata.annotations["%(after)s"]', operator: Exists}
    - {key: '.metadata.annotations["%(code)s"]', operator: %(operator)s}%(not_ours)s
  delay:
    durationMilliseconds: 1000
    durationFrom: {expressionFrom: '.metadata.annotations["%(after)s"]'}
  next:
    statusTemplate: |
      {{ $now := Now }}
      {{ $root := . }}
      containerStatuses:
      {{ range $index, $item := .spec.containers }}
      - image: {{ $item.image | Quote }}
        imageID: ""
        name: {{ $item.name | Quote }}
        ready: false
        started: false
        restartCount: 0
        state:
          terminated:
            exitCode: %(exit)s
            reason: %(reason)s
            startedAt: {{ $root.status.startTime | Quote }}
            finishedAt: {{ $now | Quote }}
      {{ end }}
      phase: %(phase)s
"""

OPEN_PORTS = range(8888, 8893)
"""Ports that are forwarded from every pod, as the kubelet does with all; kwok knows named ones only. Those of Jupyter."""
_PORTS = """
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: any-pod}
spec:
  forwards:%s
"""
_PORT = """
  - {ports: [%(port)s], target: {port: %(port)s, address: 127.0.0.1}}"""

_DELETE = """
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}%(not_ours)s
  next:
    delete: true
"""


def render(*, run_jobs: bool) -> str:
    """The stages and ports of pods, as one YAML stream. With `run_jobs`, they exclude those that `pods.py` runs."""
    not_ours = _NOT_OURS if run_jobs else ""
    names = {"after": ENDS_AFTER, "code": EXIT_CODE, "not_ours": not_ours}
    good = {
        "name": "pod-complete",
        "operator": "DoesNotExist",
        "exit": "0",
        "reason": "Completed",
        "phase": "Succeeded",
    }
    code = '{{ index $root.metadata.annotations "' + EXIT_CODE + '" }}'
    bad = {"name": "pod-fail", "operator": "Exists", "exit": code, "reason": "Error", "phase": "Failed"}
    stages = [
        _NODE,
        _READY % {"not_ours": not_ours, "conditions": _CONDITIONS},
        *(_END % {**names, **end} for end in (good, bad)),
        _DELETE % {"not_ours": not_ours},
        _PORTS % "".join(_PORT % {"port": port} for port in OPEN_PORTS),
    ]
    return "".join(stages).removeprefix("\n")
