"""The usage reducer: a pure fold from ledger rows to totals with named gaps (semantics 4, D1-D2, D5-D6, D15-D18).

No I/O, no clock. ``reduce_usage`` reads the rows of one input; ``total`` adds streams up again for any other grouping.
"""

from turnlog.usage.evidence import Manifest, Terminal
from turnlog.usage.recorder import Attempt
from turnlog.usage.reduce import Reduction, reduce_usage
from turnlog.usage.streams import Stream, total

__all__ = ["Attempt", "Manifest", "Reduction", "Stream", "Terminal", "reduce_usage", "total"]
