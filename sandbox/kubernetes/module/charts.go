package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// renderChart reads values from its standard input, and writes a chart's definitions and templates as `helm install` renders them.
// Usage: render-chart CHART RELEASE NAMESPACE
func renderChart() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: render-chart CHART RELEASE NAMESPACE")
		os.Exit(2)
	}
	if err := writeChart(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "render-chart:", err)
		os.Exit(1)
	}
}

func writeChart(folder, release, namespace string) error {
	chart, err := loader.Load(folder)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	given, err := chartutil.ReadValues(text)
	if err != nil {
		return err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	values, err := chartutil.ToRenderValues(chart, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, values)
	if err != nil {
		return err
	}
	for _, definition := range chart.CRDObjects() {
		fmt.Printf("---\n%s\n", definition.File.Data)
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if !strings.HasSuffix(name, "NOTES.txt") {
			fmt.Printf("---\n%s\n", rendered[name])
		}
	}
	return nil
}
