"""A local AWS for the CDK: try everything on this machine first, without an account.

`with LocalAws.start(directory) as aws:` gives one; `python -m sandbox` does it from a shell.
"""

from sandbox.local_aws import LocalAws, SandboxError

__all__ = ["LocalAws", "SandboxError"]
