"""``turnlog`` and ``python -m turnlog``."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    # Loading makes many objects and no circles; the command begins to collect them, if it needs that.
    gc.disable()
    from turnlog.surfaces.cli.app import is_report, run

    words = sys.argv[1:]
    code = run(words)
    if is_report(words):
        _leave(code)
    # The end of the process frees everything: no search for circles before.
    gc.freeze()
    sys.exit(code)


def _leave(code: int) -> None:
    """End the process at once: taking its objects apart takes a tenth of a report's time, and changes nothing."""
    import threading

    if threading.active_count() > 1:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # the usual end says what is wrong
    os._exit(code)


if __name__ == "__main__":
    main()
