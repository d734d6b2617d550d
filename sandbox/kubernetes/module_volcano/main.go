// Volcano's programs in one binary: which of them runs is said by the name it is called by.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	componentbase "k8s.io/component-base/config"
	componentbaseoptions "k8s.io/component-base/config/options"
	"k8s.io/klog/v2"
	controllers "volcano.sh/volcano/cmd/controller-manager/app"
	controllersoptions "volcano.sh/volcano/cmd/controller-manager/app/options"
	scheduler "volcano.sh/volcano/cmd/scheduler/app"
	scheduleroptions "volcano.sh/volcano/cmd/scheduler/app/options"
	webhooks "volcano.sh/volcano/cmd/webhook-manager/app"
	webhooksoptions "volcano.sh/volcano/cmd/webhook-manager/app/options"
	_ "volcano.sh/volcano/pkg/controllers/garbagecollector"
	_ "volcano.sh/volcano/pkg/controllers/job"
	_ "volcano.sh/volcano/pkg/controllers/podgroup"
	_ "volcano.sh/volcano/pkg/controllers/queue"
	_ "volcano.sh/volcano/pkg/scheduler/actions"
	_ "volcano.sh/volcano/pkg/scheduler/plugins"
	vcutil "volcano.sh/volcano/pkg/util"
	_ "volcano.sh/volcano/pkg/webhooks/admission/jobs/mutate"
	_ "volcano.sh/volcano/pkg/webhooks/admission/jobs/validate"
	_ "volcano.sh/volcano/pkg/webhooks/admission/podgroups/validate"
	_ "volcano.sh/volcano/pkg/webhooks/admission/queues/mutate"
	_ "volcano.sh/volcano/pkg/webhooks/admission/queues/validate"
)

func main() {
	programs := map[string]func(){
		"vc-controller-manager": runControllers,
		"vc-scheduler":          runScheduler,
		"vc-webhook-manager":    runWebhooks,
	}
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "%s: no such program; call this binary by the name of a program of Volcano\n", name)
		os.Exit(2)
	}
	run()
}

// ownFlags forgets the command line options that packages of the other programs registered when they were loaded.
func ownFlags() *pflag.FlagSet {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
	return pflag.CommandLine
}

func runScheduler() {
	flags := ownFlags()
	options := scheduleroptions.NewServerOption()
	options.AddFlags(flags)
	electLeader(flags, &options.LeaderElection, vcutil.GenerateComponentName(options.SchedulerNames))
	options.RegisterOptions()
	parse(flags)
	leave(options.CheckOptionOrDie(), func() error { return options.ParseCAFiles(nil) }, options.CertFile)
	finish(scheduler.Run(options))
}

func runControllers() {
	flags := ownFlags()
	options := controllersoptions.NewServerOption()
	options.AddFlags(flags, []string{"gc-controller", "job-controller", "pg-controller", "queue-controller"})
	electLeader(flags, &options.LeaderElection, "vc-controller-manager")
	parse(flags)
	leave(options.CheckOptionOrDie(), func() error { return options.ParseCAFiles(nil) }, options.CertFile)
	finish(controllers.Run(options))
}

func runWebhooks() {
	flags := ownFlags()
	options := webhooksoptions.NewConfig()
	options.AddFlags(flags)
	parse(flags)
	leave(options.CheckPortOrDie(), func() error { return options.ParseCAFiles(nil) }, "always")
	finish(webhooks.Run(options))
}

func electLeader(flags *pflag.FlagSet, election *componentbase.LeaderElectionConfiguration, name string) {
	vcutil.LeaderElectionDefault(election)
	election.ResourceName = name
	componentbaseoptions.BindLeaderElectionFlags(election, flags)
}

func parse(flags *pflag.FlagSet) {
	klog.InitFlags(nil)
	utilfeature.DefaultMutableFeatureGate.AddFlag(flags)
	cliflag.InitFlags()
}

func leave(err error, readCertificates func() error, certificate string) {
	if err == nil && certificate != "" {
		err = readCertificates()
	}
	if err != nil {
		finish(err)
	}
}

func finish(err error) {
	klog.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
