"""The entry point of `trn`."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Load the command and run it. Ctrl-C ends it silently while it loads, when nothing has begun, and after its last output, when everything
    is done."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would read the files of all packages to find one
    try:
        from trainium_cdk.client.cli import app
    except ModuleNotFoundError as e:
        if str(e.name).startswith("trainium_cdk"):
            raise
        raise SystemExit(
            f"trn: {e.name} is not installed. Install trainium-cdk with its extra: trainium-cdk[jobs]"
        ) from None

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            app.main()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
