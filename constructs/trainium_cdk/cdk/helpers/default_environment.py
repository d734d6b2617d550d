"""The environment of a stack that is given none."""

from __future__ import annotations

import os

import aws_cdk as cdk
from constructs import Construct

from trainium_cdk.description import checks, engines, settings


def default_environment(scope: Construct, engine: str, env: cdk.Environment | None) -> settings.Environment:
    """The defaults of one engine, in the region of the stack.

    A stack without a region is deployed to the region of the CDK's command line, which passes it in CDK_DEFAULT_REGION. Without that
    either, the region is us-east-1.

    Args:
        scope: of the stack, which may be in a stage with a region.
        engine: its name.
        env: as the stack was given it.

    Raises:
        SettingsError: the region does not offer what the defaults need.
    """
    stages = [parent.region for parent in reversed(scope.node.scopes) if isinstance(parent, cdk.Stage)]
    known = [env.region if env else None, *stages, os.environ.get("CDK_DEFAULT_REGION")]
    region = next((r for r in known if r and not cdk.Token.is_unresolved(r)), settings.Environment().region)
    environment = settings.validate({"region": region, engines.get(engine).section: {}})
    checks.require(environment, engine)
    return environment


def chosen_software(environment: settings.Environment) -> settings.Bootstrap:
    """Return the software of an environment's nodes, with the release and the framework that fit all of its clusters."""
    chosen = {"neuron_release": environment.release.version, "framework": environment.framework}
    return environment.bootstrap.model_copy(update=chosen)
