"""The entry point of `trn`."""

from __future__ import annotations

import gc
import os
import signal


def main() -> None:
    """Load the command and run it. Ctrl-C ends it silently while it loads, when nothing has begun, and after its last output,
    when everything is done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # modules that load leave nothing to collect: a tenth of the time of a short command
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would read the files of all packages to find one
    from trainium_cdk.cli import app

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.freeze()
        try:
            app.main()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
