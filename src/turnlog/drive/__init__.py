"""Driving a conversation durably: claim → intent → send → observe → settle → finish.

What a surface needs: ``run``, ``resume``, ``recover`` and the values below. Everything here is async and talks to the
ledger in threads; one event loop may drive several conversations.
"""

from __future__ import annotations

from turnlog.drive.conversation import resume, run
from turnlog.drive.recover import recover, unfinished_sessions
from turnlog.drive.types import Listener, RecoverReport, RunOptions, Stop, TurnResult

__all__ = [
    "Listener",
    "RecoverReport",
    "RunOptions",
    "Stop",
    "TurnResult",
    "recover",
    "resume",
    "run",
    "unfinished_sessions",
]
