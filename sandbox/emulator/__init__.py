"""The emulator's side of the sandbox: ministack with what it lacks.

Everything in this package runs in the environment `.venvs/aws` (ministack pins botocore), started as
`python -m sandbox.emulator`. Nothing outside the package imports it.
"""
