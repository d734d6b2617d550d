"""A local AWS for CDK apps: deploy, test and destroy on this machine, without an account.

`with LocalAws.start(directory) as aws:` starts one; so does `python -m sandbox up` from a shell.
"""

from sandbox.local_aws import LocalAws, SandboxError

__all__ = ["LocalAws", "SandboxError"]
