"""The CDK app. `cdk deploy TrnPclusterStack`, with the environment of `-c env=FILE`, of TRN_ENV, or of `trn use`: see `trainium_cdk.app`."""

import sys

try:
    from trainium_cdk.app import build, run
except ModuleNotFoundError as e:
    sys.exit(
        f"{e.name} is not installed for {sys.executable}. Run `make setup`, or `pip install -r requirements.txt` and `pip install --no-deps -e .`."
    )

__all__ = ["build", "run"]

if __name__ == "__main__":
    sys.exit(run())
