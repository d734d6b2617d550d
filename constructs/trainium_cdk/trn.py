"""Where the command `trn` starts."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command and run it. Ctrl-C ends it without a word until it is loaded: nothing has begun by then."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from trainium_cdk import cli

    signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()
