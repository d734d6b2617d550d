"""The emulator: ministack with the sandbox's additions.

Everything in this package runs in the environment `.venvs/aws` (ministack pins botocore), started with
`python -m sandbox.emulator`. Nothing outside the package imports it.
"""
