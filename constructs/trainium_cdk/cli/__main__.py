"""The entry point of `trn`."""

from __future__ import annotations

import signal


def main() -> None:
    """Load the command and run it. Ctrl-C ends it silently while it loads, when nothing has begun, and after its last output,
    when everything is done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from trainium_cdk.cli import app

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            app.main()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
