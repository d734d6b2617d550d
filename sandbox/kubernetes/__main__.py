"""`python -m sandbox.kubernetes build [--all] | up DIRECTORY | down DIRECTORY`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox import guard
from sandbox.kubernetes.build import BuildFailed, build, program
from sandbox.kubernetes.cluster import KubernetesFailed, LocalKubernetes
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.errors import UnknownCatalogEntry


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox.kubernetes", description="A real Kubernetes on this machine."
    )
    commands = parser.add_subparsers(dest="verb", required=True)
    built = commands.add_parser("build", help="build its programs, unless already built")
    built.add_argument("--all", action="store_true", help="Volcano too, which jobs of TorchX need")
    up = commands.add_parser("up", help="start one, and print the shell's settings for its kubectl")
    up.add_argument("directory", type=Path)
    up.add_argument("--instance", default="trn1.32xlarge", help="type of the virtual nodes (%(default)s)")
    up.add_argument("--nodes", type=int, default=2, help="number of them (%(default)s)")
    up.add_argument("--run", action="store_true", help="run the commands of training jobs for real")
    down = commands.add_parser("down", help="stop it, pods included")
    down.add_argument("directory", type=Path)
    down.add_argument("--wipe", action="store_true", help="also remove its directory")
    args = parser.parse_args(arguments)
    try:
        if args.verb == "build":
            build(volcano=args.all)
        elif args.verb == "down":
            LocalKubernetes.open(args.directory).stop(wipe=args.wipe)
        else:
            instance = Catalog.load().instance(args.instance)
            cluster = LocalKubernetes.start(args.directory, run_jobs=args.run)
            guard.release("kubernetes", cluster.directory)
            cluster.add_system_nodes()
            cluster.add_nodes(instance, args.nodes)
            print(f"export KUBECONFIG={cluster.kubeconfig} PATH={program('kubectl').parent}:$PATH")
    except (BuildFailed, KubernetesFailed, UnknownCatalogEntry, OSError) as problem:
        print(f"sandbox.kubernetes: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
