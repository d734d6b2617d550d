"""Boundaries for hostile teams: admission policies of the Kubernetes API, quotas, default requests, a default account without token, and network
policies of the jobs' pods. Pure.

Kueue holds only objects that name a queue, so these hold the others.

A job with devices must be suspended when a person sends it: Kueue suspends what has a queue, and only Kueue resumes it. A label proves nothing,
as Kueue ignores it on a Pod or DaemonSet; nor does an owner reference, which anyone can write. JobSets of `trn` without a queue yet, which wait
for `prepare` or another job, are suspended too.

The policies bind whoever may not change them, but for the controllers that make pods from objects which were judged already. A controller of
your own fails closed: its pods with devices are refused until its namespace is in `_CONTROLLERS` and its kind in `_PODS`.

The VPC CNI's agent enforces the network policies (`enableNetworkPolicy` of the add-on). EFA is not IP traffic, and is not filtered; shared file
systems are mounted by the node. Volcano's plug-in `svc` lets the pods of one job reach each other, with a policy for each job.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from trainium_cdk.cdk.eks.access import OBJECTS, SCALER
from trainium_cdk.cdk.eks.installation import OWNER, Installation, Manifest, kubernetes_object
from trainium_cdk.cdk.eks.kueue import NAMESPACE_LABEL
from trainium_cdk.cdk.helpers.rules import unresolved
from trainium_cdk.description.outputs import GROUP_LABEL
from trainium_cdk.text import join_words

_API = "admissionregistration.k8s.io"
_CONTROLLERS = ("kube-system", "kueue-system", "jobset-system", "volcano-system", "kubeflow-system")
"""Namespaces of controllers. People have no rights in them."""
_PODS = {
    "": ["pods", "replicationcontrollers"],
    "apps": ["daemonsets", "deployments", "replicasets", "statefulsets"],
    "batch": ["jobs", "cronjobs"],
    "jobset.x-k8s.io": ["jobsets"],
    "trainer.kubeflow.org": ["trainjobs"],
}
"""Kinds with pods in them. Volcano's jobs have their own queues."""
_OBJECTS = {
    "": ["services", "persistentvolumeclaims", "serviceaccounts"],
    "networking.k8s.io": ["networkpolicies"],
    "coordination.k8s.io": ["leases"],
    "rbac.authorization.k8s.io": ["roles", "rolebindings"],
}
_CLAIMS = {"resource.k8s.io": ["resourceclaimtemplates", "resourceclaims"]}
_QUEUE = "?labels[?'kueue.x-k8s.io/queue-name']"
_CHANGED = (
    "oldObject == null || object.spec != oldObject.spec"
    f" || object.metadata.{_QUEUE} != oldObject.metadata.{_QUEUE}"
    " || object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences"
)
"""Annotations and other labels of what runs are free."""
_SPECS = (
    "object.kind == 'TrainJob' ? [{'containers': [{'resources': object.spec.?trainer.?resourcesPerNode.orValue({})}]}]"
    " : has(object.spec.replicatedJobs) ? object.spec.replicatedJobs.map(r, r.template.spec.template.spec)"
    " : has(object.spec.jobTemplate) ? [object.spec.jobTemplate.spec.template.spec]"
    " : has(object.spec.containers) ? [object.spec]"
    " : has(object.spec.template) ? [object.spec.template.spec] : []"
)
_COUNTS = (
    "has(object.spec.replicatedJobs) ? object.spec.replicatedJobs.map(r, r.?replicas.orValue(1) * r.template.spec.?parallelism.orValue(1))"
    " : object.kind == 'Job' ? [object.spec.?parallelism.orValue(1)] : []"
)
"""Numbers of pods of an object's parts."""
_CONTAINERS = "(s.containers + s.?initContainers.orValue([]))"
_AMOUNTS = "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"
_OWNED = "object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"
_OPENS = (
    "object.spec.?egress.orValue([]).size() > 0 || object.spec.?ingress.orValue([]).exists(r, r.?from.orValue([]).size() == 0"
    " || r.from.exists(p, !has(p.podSelector) || has(p.namespaceSelector)))"
)
POD_IDENTITY = "169.254.170.23/32"
"""Addresses of the EKS Pod Identity agent, which provides the jobs' credentials on port 80 (EKS user guide, Pod Identity agent)."""
METADATA = "169.254.169.254/32"
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")
"""Networks of VPCs, the cluster's services and the node itself. All others are the internet."""


def boundaries(wanted: Installation) -> list[Manifest]:
    """The objects of the cluster, and of each namespace of jobs."""
    found = [*_policy("trn-pods", _PODS, ["CREATE", "UPDATE"], _of_pods(wanted))]
    found += _policy("trn-objects", _OBJECTS, ["CREATE", "UPDATE", "DELETE"], _of_objects())
    if wanted.claims:
        found += _policy("trn-claims", _CLAIMS, ["CREATE", "UPDATE", "DELETE"], _of_claims(wanted))
    for namespace in wanted.namespaces:
        found += _limits(namespace)
    return found


def _limits(namespace: str) -> list[Manifest]:
    def namespaced(kind: str, name: str, **rest: object) -> Manifest:
        return {**kubernetes_object("v1", kind, name, namespace=namespace), **rest}

    # such pods evict those of others. Not all classes: where one is the default, all pods have it
    critical = {
        "scopeName": "PriorityClass",
        "operator": "In",
        "values": ["system-cluster-critical", "system-node-critical"],
    }
    outside = ("services.loadbalancers", "services.nodeports", "count/ingresses.networking.k8s.io")
    # a pod that requests nothing counts as nothing when its node is chosen
    least = {"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "256Mi"}}
    return [
        namespaced(
            "ResourceQuota",
            "trn-no-priority",
            spec={"scopeSelector": {"matchExpressions": [critical]}, "hard": {"pods": "0"}},
        ),
        namespaced("ResourceQuota", "trn-nothing-outside", spec={"hard": dict.fromkeys(outside, "0")}),
        namespaced("LimitRange", "trn-least", spec={"limits": [least]}),
        namespaced("ServiceAccount", "default", automountServiceAccountToken=False),
    ]


def _of_pods(wanted: Installation) -> Manifest:
    names, taint = wanted.catalog.eks.resources, wanted.catalog.eks.taint
    device = f"k.startsWith('{names.device}') || k == '{names.efa}'"
    amounts = f"{_CONTAINERS}.exists(c, {_AMOUNTS}.exists(m, m.exists(k, %s)))"
    claimed = "s.?resourceClaims.orValue([]).size() > 0" if wanted.claims else "has(s.resourceClaims)"
    asks = f"{claimed} || {amounts % device}"
    none = amounts % f"k.startsWith('{names.device}') && quantity(string(m[k])).isLessThan(quantity('1'))"
    # an empty key tolerates everything
    tolerates = f"s.?tolerations.orValue([]).exists(t, t.?key.orValue('') in ['', '{taint}'])"
    variables = {
        "specs": _SPECS,
        "counts": _COUNTS,
        "judged": f"variables.specs.map(s, {{'asks': {asks}, 'none': {none}, 'tolerates': {tolerates}}})",
        "devices": "object.kind == 'TrainJob' || variables.judged.exists(j, j.asks)",  # a TrainJob's are in its runtime
        # the Jobs of a CronJob take the label of its template
        "queued": f"object.kind == 'CronJob' ? object.spec.jobTemplate.?metadata.{_QUEUE}.orValue('') != ''"
        " : object.spec.?suspend.orValue(false)",
    }
    rules = {
        "!variables.devices || variables.queued": "Trainium and EFA devices come only from a queue. Send a Job or JobSet with the label "
        "kueue.x-k8s.io/queue-name, and let Kueue start it",
        # Kueue lets their pods onto Trainium nodes, and counts none
        "!variables.judged.exists(j, j.none)": "a container asks for 0 Trainium devices. Ask for 1 or more, or remove the line",
        # Kueue 0.18.3 asks for its nodes with a count of 0, which no ProvisioningRequest may have, and the share stays taken (its pull request 13975)
        "!variables.devices || variables.counts.all(n, n != 0)": "a part has 0 pods, which Kueue cannot start. Remove it, or give "
        "replicas and parallelism of 1 or more",
        "variables.judged.all(j, j.asks || !j.tolerates)": "only pods that request devices may tolerate the taint of Trainium nodes. "
        "Remove the toleration",
        # Kueue takes the child of an admitted job for a part of it
        f"!variables.devices || !{_OWNED}": "a job with devices may have no controller as its owner. Remove ownerReferences",
        "variables.specs.all(s, !has(s.nodeName))": "nodeName goes past the scheduler. Use nodeSelector",
    }
    return {
        "matchConditions": [{"name": "people", "expression": _people()}, {"name": "changed", "expression": _CHANGED}],
        "variables": _named(variables),
        "validations": _messages(rules),
    }


def _of_objects() -> Manifest:
    [(label, value)] = OWNER.items()
    ours = f"oldObject.metadata.?labels[?'{label}'].orValue('') == '{value}'"
    is_kind = "object != null && object.kind == '{}'".format
    rules = {
        f"oldObject == null || !({ours})": "this object belongs to the stack. Change the environment file, and deploy it",
        f"!({is_kind('Service')} && object.spec.?externalIPs.orValue([]).size() > 0)": "externalIPs take the traffic of others. "
        "Remove them",
        # policies add up: one that allows everything opens what the stack's close
        f"!({is_kind('NetworkPolicy')} && ({_OPENS}))": "a network policy may only let pods of its own namespace in. "
        "Use podSelector alone; eks.job_networks opens networks",
    }
    return {
        "matchConditions": [{"name": "people", "expression": _people(SCALER, OBJECTS)}],
        "validations": _messages(rules),
    }


def _of_claims(wanted: Installation) -> Manifest:
    """What Kueue can count, and Neuron's driver gives as connected devices. Each pod reads the template again, after Kueue has counted it."""
    facts = wanted.catalog.eks.claims
    counts = {kind.neuron_devices for kind in wanted.catalog.instances.values()}
    sizes = sorted(counts.union(*facts.parts.values()))
    variables = {
        "template": "object != null && oldObject == null && object.kind == 'ResourceClaimTemplate'",
        "requests": "variables.template ? object.spec.spec.?devices.?requests.orValue([]) : []",
        "asked": "variables.requests.filter(r, has(r.exactly)).map(r, r.exactly)",
        "alike": "variables.template ? object.spec.spec.?devices.?constraints.orValue([]).map(c, c.?matchAttribute.orValue('')) : []",
    }
    group = "'" + facts.group.format(count="' + string(n) + '") + "'"
    rules = {
        "oldObject != null || object.kind != 'ResourceClaim'": "Kueue counts no ResourceClaim with a name. Send a ResourceClaimTemplate, and "
        "write resourceClaimTemplateName in the pod",
        "oldObject == null || oldObject.kind != 'ResourceClaimTemplate' || !has(oldObject.metadata.ownerReferences)": "Kueue has counted "
        "this template for its job. End the job, and send both again",
        "!variables.template || variables.requests.size() == 1 && variables.asked.size() == 1": "Kueue counts no firstAvailable. Write one "
        "request with `exactly`",
        f"variables.asked.all(a, a.deviceClassName == '{facts.device_class}')": "Kueue counts no other class of devices. Write "
        f"deviceClassName: {facts.device_class}",
        "variables.asked.all(a, a.?allocationMode.orValue('ExactCount') == 'ExactCount')": "Kueue counts no allocationMode: All. Write "
        "ExactCount, and the count of a whole node",
        f"variables.asked.all(a, a.?count.orValue(1) in {sizes})": "so many devices of a node are not connected. Write count: "
        f"{join_words(map(str, sizes), 'or')}",
        f"variables.asked.all(a, !{sizes}.exists(n, n < a.?count.orValue(1) && {group} in variables.alike))": "a smaller group has no such "
        f"number of devices. Write matchAttribute: {facts.group.format(count='COUNT')}, with the count of the request",
        # Kueue counts it once, and each pod reads it again: made again under its name, it has the same count
        "variables.asked.all(a, object.metadata.name.endsWith('-' + string(a.?count.orValue(1))))": "the name of a template ends with its "
        "count, which Kueue reads once. Write for example name: my-claims-8 for count: 8",
        "!variables.asked.exists(a, a.?adminAccess.orValue(false))": "adminAccess takes the devices of others. Remove it",
        "variables.asked.all(a, a.?selectors.orValue([]).size() == 0)": "Kueue waits until nodes with such devices run, and starts none. "
        f"Remove the selectors, and write nodeSelector in the pod, with {GROUP_LABEL}",
    }
    people = f"{_people()} && !request.userInfo.username.startsWith('system:kube-')"  # the scheduler makes claims of extended resources
    return {
        "matchConditions": [{"name": "people", "expression": people}],
        "variables": _named(variables),
        "validations": _messages(rules),
    }


def _people(*groups: str) -> str:
    """Return the CEL expression for requests of people: not of controllers, these groups, or anyone who may change the policies."""
    known = ["system:nodes", *(f"system:serviceaccounts:{each}" for each in _CONTROLLERS), *groups]
    may = f"authorizer.group('{_API}').resource('validatingadmissionpolicies').check('update').allowed()"
    return f"!request.userInfo.groups.exists(g, g in {known}) && !{may}"


def _policy(name: str, kinds: dict[str, list[str]], operations: Sequence[str], rules: Manifest) -> list[Manifest]:
    resources = [
        {"apiGroups": [group], "apiVersions": ["*"], "operations": list(operations), "resources": names}
        for group, names in kinds.items()
    ]
    policy = kubernetes_object(f"{_API}/v1", "ValidatingAdmissionPolicy", name)
    binding = kubernetes_object(f"{_API}/v1", "ValidatingAdmissionPolicyBinding", name)
    where = {"namespaceSelector": {"matchLabels": NAMESPACE_LABEL}}
    return [
        {**policy, "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": resources}, **rules}},
        {**binding, "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": where}},
    ]


def _named(expressions: dict[str, str]) -> list[Manifest]:
    return [{"name": name, "expression": text} for name, text in expressions.items()]


def _messages(rules: dict[str, str]) -> list[Manifest]:
    return [{"expression": text, "message": message} for text, message in rules.items()]


def network_policies(wanted: Installation) -> list[Manifest]:
    """Policies of each namespace of jobs.

    Ingress: only what a job's own policy allows. Egress: the namespace's pods (subject to their own policies), DNS, credentials,
    HTTPS to everything but the instance's metadata (AWS's endpoints may be in the VPC), the internet, and `eks.job_networks`.
    """
    everywhere = {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(PRIVATE)}}
    https = {"ipBlock": {"cidr": "0.0.0.0/0", "except": [METADATA]}}
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    egress: list[Manifest] = [
        {"to": [{"podSelector": {}}]},
        {"to": [dns], "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
        {"to": [{"ipBlock": {"cidr": POD_IDENTITY}}], "ports": [{"protocol": "TCP", "port": 80}]},
        {"to": [https], "ports": [{"protocol": "TCP", "port": 443}]},
        {"to": [everywhere, *(_block(cidr) for cidr in wanted.job_networks)]},
    ]
    return [
        policy
        for namespace in wanted.namespaces
        for policy in (
            _network_policy(namespace, "trn-deny-in", {"policyTypes": ["Ingress"]}),
            _network_policy(namespace, "trn-out", {"policyTypes": ["Egress"], "egress": egress}),
        )
    ]


def _block(cidr: str) -> Manifest:
    """A network, without the instance's metadata. What a token stands for is not known: the hop limit keeps pods from it there."""
    if unresolved(cidr):
        return {"ipBlock": {"cidr": cidr}}
    inside = ipaddress.ip_network(METADATA).subnet_of(ipaddress.ip_network(cidr))  # type: ignore[arg-type]  # both are of version 4
    return {"ipBlock": {"cidr": cidr, **({"except": [METADATA]} if inside else {})}}


def _network_policy(namespace: str, name: str, spec: Manifest) -> Manifest:
    found = kubernetes_object("networking.k8s.io/v1", "NetworkPolicy", name, namespace=namespace)
    return {**found, "spec": {"podSelector": {}, **spec}}
