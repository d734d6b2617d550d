"""The entry point of `trn`."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
from types import ModuleType
from typing import Any

from trainium_cdk._compiled import compile_sources_once


def main() -> None:
    """Load the command, run it and end this process. Ctrl-C ends it silently while it loads, when nothing has begun, and after its last
    output, when everything is done."""
    try:
        _run()
    except SystemExit as e:
        if not isinstance(e.code, int | None) or threading.active_count() > 1:
            raise
        _leave(e.code or 0)
    _leave(0)


def _leave(code: int) -> None:
    """End the process without freeing each of its objects, which takes a fifth of the time of a short command."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed by the caller
            stream.flush()
    os._exit(code)


def _metadata_later() -> None:
    """Load importlib.metadata when it is first used, not where it is imported: pydantic and urllib3 import it, for their plug-ins and for a
    version, and it takes a tenth of the time of a short command."""
    name = "importlib.metadata"

    def attribute(wanted: str) -> Any:
        if sys.modules.get(name) is module:
            del sys.modules[name]
        return getattr(importlib.import_module(name), wanted)

    module = ModuleType(name)
    module.__path__ = [os.path.join(os.path.dirname(importlib.__file__), "metadata")]  # noqa: PTH118, PTH120  pathlib takes time
    for function in ("entry_points", "version"):
        setattr(module, function, lambda *args, _of=function, **named: attribute(_of)(*args, **named))
    module.__getattr__ = attribute  # type: ignore[method-assign]
    sys.modules.setdefault(name, module)


def _run() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # modules that load leave nothing to collect: a tenth of the time of a short command
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would read the files of all packages to find one
    _metadata_later()
    compile_sources_once()
    from trainium_cdk.cli import app

    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.freeze()
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
