"""What is told of work: pull requests of tasks, where an attribution comes from, what happened lately."""

from __future__ import annotations

from typing import Final

import msgspec

NO_WORK: Final = "-"


class TaskPr(msgspec.Struct, frozen=True, kw_only=True):
    """One pull request of a Task (2.4); ``created_at`` is when it was named here, unix ms."""

    id: str
    task_id: str
    external_id: str
    identifier: str
    created_at: int
    title: str | None


class Checkout(msgspec.Struct, frozen=True, kw_only=True):
    """The work that a folder is for: a task by its worktree, else the one wave of its repository."""

    task_id: str | None
    wave_id: str
    name: str


class SessionWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation is for now. ``mixed``: a turn of it is attributed otherwise (R16.10)."""

    task_id: str | None
    wave_id: str | None
    source: str | None
    mixed: bool
    label: str


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that was recorded lately; ``at`` is unix ms.

    ``kind``: ``work_created pr_recorded input_captured provider_history_recorded input_completion_recorded steer_issued
    interrupt_issued permission_issued bound conversation_closed work_retired``; more may come.

    ``subject`` says what it is about (``wave project task pr input turn request session``), ``id`` which. ``turn`` is
    the newest of an input. ``task`` and ``wave`` are as they were attributed there. ``outcome`` is the provider's word
    for a completion, the state of a request. ``imported``: it was read from a provider's own files.
    """

    at: int
    kind: str
    subject: str
    id: str
    session: str | None = None
    turn: str | None = None
    task: str | None = None
    task_identifier: str | None = None
    wave: str | None = None
    wave_name: str | None = None
    title: str | None = None
    outcome: str | None = None
    detail: str | None = None
    imported: bool = False


def name_work(task: str | None, task_identifier: str | None, wave: str | None, wave_name: str | None) -> str:
    """Return ``task/<identifier>``, ``wave/<address>`` or ``-`` (R16.10)."""
    if task is not None:
        return f"task/{task_identifier or task}"
    if wave is not None:
        return f"wave/{wave_name or wave}"
    return NO_WORK
