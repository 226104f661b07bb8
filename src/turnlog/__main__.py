"""``turnlog`` and ``python -m turnlog``."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    from turnlog.surfaces.cli.app import run

    code = run(sys.argv[1:])
    # The end of the process frees everything: no search for circles before.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
