"""Makes the price lists that turnlog brings from the price data that is installed here.

Run it after the pinned release of genai-prices was changed: python tools/make_pricetable.py
"""

from __future__ import annotations

from turnlog.queries.pricetable import PACKAGED
from turnlog.queries.pricing import installed, made

text = made()
PACKAGED.write_bytes(text)
print(f"{PACKAGED.name}: {len(text):,} bytes of genai-prices {installed()[0]}")
