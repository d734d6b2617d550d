// The programs of a Kubernetes cluster in one binary: which of them runs is said by the name it is called by.
// One binary and not nine, because their common packages, most of the code, are then compiled and linked once.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata" // time zones of CronJobs, also where the machine has none

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	programs := map[string]func(){
		"etcd":                    func() { etcdmain.Main(os.Args) },
		"kube-apiserver":          func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
		"kube-controller-manager": func() { os.Exit(cli.Run(controllers.NewControllerManagerCommand())) },
		"kube-scheduler":          func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) },
		"kubectl":                 kubectl,
		"kwok":                    kwok,
		"certificates":            certificates,
		"network-policies":        networkPolicies,
		"render-chart":            renderChart,
	}
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s: no such program; call this binary by the name of a Kubernetes program\n", name)
		os.Exit(2)
	}
	run()
}

// ownFlags forgets the command line options that packages of the other programs registered when they were loaded.
func ownFlags() *pflag.FlagSet {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
	return pflag.CommandLine
}

func kubectl() {
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
