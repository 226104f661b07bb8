"""A process that looks at every history once and prints the totals: what the first usage report stands on."""

from __future__ import annotations

import os

import orjson

from turnlog.intake import readers
from turnlog.intake.scan import scan_usage
from turnlog.usage.buckets import COUNTERS

NAMES = ("calls", *COUNTERS)


def main() -> None:
    totals = dict.fromkeys(NAMES, 0)
    for buckets in scan_usage(readers(), os.environ).buckets.values():
        for bucket in buckets:
            for name in NAMES:
                totals[name] += getattr(bucket.sums, name) or 0
    print(orjson.dumps(totals).decode())


if __name__ == "__main__":
    main()
