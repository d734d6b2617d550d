package main

import (
	"encoding/json"
	"os"

	"github.com/mattfenwick/cyclonus/pkg/matcher"
	networking "k8s.io/api/networking/v1"
)

// networkPolicies reads policies and connections from its standard input, and writes for each connection whether it is allowed.
// The rules are Cyclonus's, which Kubernetes' network special interest group made to test implementations of NetworkPolicy.
func networkPolicies() {
	var question struct {
		Policies    []*networking.NetworkPolicy
		Connections []*matcher.Traffic
	}
	decoder := json.NewDecoder(os.Stdin)
	if err := decoder.Decode(&question); err != nil {
		os.Stderr.WriteString("network-policies: " + err.Error() + "\n")
		os.Exit(1)
	}
	policy := matcher.BuildNetworkPolicies(true, question.Policies)
	allowed := []bool{}
	for _, connection := range question.Connections {
		allowed = append(allowed, policy.IsTrafficAllowed(connection).IsAllowed())
	}
	_ = json.NewEncoder(os.Stdout).Encode(allowed)
}
