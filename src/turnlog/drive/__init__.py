"""Driving a conversation durably: claim → intent → send → observe → settle → finish.

What a surface needs: ``run``, ``resume``, ``recover`` and the values below. Everything here is async and talks to the
ledger in threads; one event loop may drive several conversations.
"""

from __future__ import annotations

from turnlog.drive.caller import Caller, calling_input, start_exec
from turnlog.drive.caller import read as read_caller
from turnlog.drive.conversation import resume, run
from turnlog.drive.processes import Node, Processes, ProviderProcess
from turnlog.drive.processes import running as running_processes
from turnlog.drive.processes import stop as stop_process
from turnlog.drive.recover import recover, unfinished_sessions
from turnlog.drive.types import Listener, RecoverReport, RunOptions, Stop, TurnResult

__all__ = [
    "Caller",
    "Listener",
    "Node",
    "Processes",
    "ProviderProcess",
    "RecoverReport",
    "RunOptions",
    "Stop",
    "TurnResult",
    "calling_input",
    "read_caller",
    "recover",
    "resume",
    "run",
    "running_processes",
    "start_exec",
    "stop_process",
    "unfinished_sessions",
]
