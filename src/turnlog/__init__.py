"""turnlog: the flight recorder and dispatcher for coding agents.

``open_ledger()`` gives a ``Ledger`` of receipts: what was asked, which process asked, what the provider says happened,
what it cost, and what nobody knows. The public names are exactly those of ``__all__``; they are loaded on first use,
so that importing the package costs nothing on a status-line path.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnlog.api import Ledger, open_ledger
    from turnlog.errors import (
        ConflictError,
        InvalidError,
        MissingError,
        StaleError,
        TurnlogError,
        UnavailableError,
        UncertainError,
    )
    from turnlog.model import (
        Driver,
        Event,
        EventKind,
        Exec,
        FinalAnswer,
        Gap,
        InputHistory,
        Problem,
        ProviderRecord,
        ProviderSession,
        Session,
        SessionSummary,
        Usage,
    )
    from turnlog.receipts import Observation

__all__ = [
    "ConflictError",
    "Driver",
    "Event",
    "EventKind",
    "Exec",
    "FinalAnswer",
    "Gap",
    "InputHistory",
    "InvalidError",
    "Ledger",
    "MissingError",
    "Observation",
    "Problem",
    "ProviderRecord",
    "ProviderSession",
    "Session",
    "SessionSummary",
    "StaleError",
    "TurnlogError",
    "UnavailableError",
    "UncertainError",
    "Usage",
    "open_ledger",
]

_MODULES = {"Ledger": "api", "open_ledger": "api", "Observation": "receipts"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'turnlog' has no attribute {name!r}")
    module = _MODULES.get(name) or ("errors" if name.endswith("Error") else "model")
    return getattr(import_module(f"turnlog.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
