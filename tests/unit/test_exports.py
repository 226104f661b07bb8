"""The public names and signatures are those of the contract."""

from __future__ import annotations

import inspect
import subprocess
import sys
from enum import StrEnum

import msgspec
import pytest

import turnlog
from turnlog import EventKind, Ledger, TurnlogError

NAMES = frozenset(
    {"open_ledger", "Ledger", "Session", "SessionSummary", "Event", "EventKind", "Observation", "Driver", "Exec"}
    | {"Usage", "Gap", "InputHistory", "ProviderRecord", "ProviderSession", "FinalAnswer", "Problem", "TurnlogError"}
    | {"ConflictError", "StaleError", "MissingError", "InvalidError", "UncertainError", "UnavailableError"}
)


MEMBERS = {
    "Session": "id title title_source kind interactive created_at completed_at ready_summary cwd repo skill provider"
    " model task_id wave_id flow_session_id work_source bound_at primary_scope artifact_key captured",
    "Driver": "exec_id generation provider_generation provider_exec_id",
    "Exec": "id trace_id parent_id via_agent command repo cwd started_at completed_at outcome exit_code signal error",
    "Event": "seq session_id thread turn kind provider_generation exec_id task_id wave_id observed_at payload",
    "Usage": "streams final_streams gaps gap_list input_tokens output_tokens total_input_tokens peak_input_tokens"
    " context_window_tokens reasoning_tokens cache_read_tokens cache_write_tokens cache_write_1h_tokens cost_usd",
    "Gap": "kind stream seq counter before after",
    "InputHistory": "session_id captured artifact_key caller_artifact_key task_pr_id repo worktree task_id wave_id"
    " task_identifier work_source wave_name skill observed_at first_provider_attempt_at recorded_outcome recorded_at"
    " providers usage evidence_gaps harness model surface",
    "ProviderRecord": "kind thread turn attempt_key start_seq completion_seq exec_id task_id wave_id started_at"
    " completed_at outcome usage",
    "ProviderSession": "provider_session_id account_id source gaps",
    "FinalAnswer": "text exact turn value gaps",
    "SessionSummary": "session latest_turn driver_outcome membership",
    "Problem": "kind where detail",
    "Observation": "artifact_key source observed_at payload task_id wave_id",
}

SIGNATURES = {
    # positional parameters | keyword-only parameters
    "start_exec": "| id trace_id parent_id via_agent caller_session_id caller_provider_generation command repo cwd",
    "end_exec": "exec_id outcome | exit_code signal error",
    "exec": "1 |",
    "execs": "| search repo cursor limit",
    "create_wave": "name | repo parent_id id",
    "create_project": "wave_id | external_id slug name id",
    "create_task": "project_id | external_id identifier title id",
    "create_session": "| id artifact_key title title_source kind interactive cwd repo provider model skill task_id"
    " wave_id primary_scope caller created_at published",
    "session": "1 |",
    "session_for_artifact": "key |",
    "sessions": "| search provider task all interactive needs_me cursor limit",
    "session_summary": "1 |",
    "replace_input": "session_id expected_capture | artifact_key cwd skill provider model",
    "publish_input": "session_id capture |",
    "bind_session": "session_id expected_capture task_id |",
    "rename_session": "1 title source |",
    "complete_session": "1 capture |",
    "ready_session": "1 capture summary |",
    "claim_driver": "session_id expected exec_id | replace_engine",
    "release_driver": "session_id driver |",
    "finish_driver": "session_id driver outcome |",
    "driver": "session_id |",
    "driving": "session_id driver |",
    "record_connection": "session_id driver endpoint thread |",
    "connection": "session_id |",
    "thread": "session_id |",
    "record_process": "session_id driver pid started_at |",
    "process": "session_id |",
    "record_launch": "session_id driver stage |",
    "intend_turn": "session_id driver thread request_id payload | turn",
    "accept_turn": "session_id driver request_id turn |",
    "refuse_turn": "session_id driver request_id reason |",
    "record": "session_id thread turn kind payload |",
    "record_many": "session_id rows |",
    "record_turn_origin": "session_id thread turn provider_generation exec_id |",
    "retain": "session_id observation |",
    "request": "session_id kind text | exec_id",
    "requests": "session_id |",
    "history": "session_id after limit |",
    "input_summary": "artifact_key | wave project task",
    "input_events": "artifact_key |",
    "input_event_times": "artifact_key |",
    "orphaned_history": "session_id thread turn | wave project task",
    "provider_session": "artifact_key |",
    "final_answer": "artifact_key |",
    "input_history": "selector |",
    "inputs": "| wave project task caller since include_finished",
    "recent_inputs": "| wave project task since limit",
    "verify": "|",
    "close": "|",
}
"""``1``: a first positional parameter whose name the contract gives as ``id``, which callers pass by position."""

DEFAULTS = {
    ("execs", "limit"): 100,
    ("sessions", "limit"): 100,
    ("sessions", "all"): False,
    ("sessions", "interactive"): None,
    ("sessions", "needs_me"): False,
    ("create_session", "title"): "Untitled",
    ("create_session", "title_source"): "generated",
    ("create_session", "kind"): "conversation",
    ("create_session", "interactive"): True,
    ("create_session", "published"): True,
    ("rename_session", "source"): "human",
    ("claim_driver", "replace_engine"): False,
    ("history", "after"): 0,
    ("history", "limit"): None,
    ("inputs", "since"): 0,
    ("inputs", "include_finished"): True,
    ("recent_inputs", "since"): 0,
    ("recent_inputs", "limit"): 50,
    ("request", "text"): None,
}


def test_all_is_the_contract() -> None:
    assert set(turnlog.__all__) == NAMES
    assert len(turnlog.__all__) == len(NAMES)
    assert set(dir(turnlog)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_is_there(name: str) -> None:
    assert getattr(turnlog, name).__name__ == name


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        turnlog.nothing  # noqa: B018


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name: str) -> None:
    kind = getattr(turnlog, name)
    assert issubclass(kind, msgspec.Struct)
    assert kind.__struct_config__.frozen
    assert set(MEMBERS[name].split()) <= set(kind.__struct_fields__)


def test_kinds_of_events() -> None:
    assert issubclass(EventKind, StrEnum)
    assert [str(kind) for kind in EventKind] == (
        ["started", "usage", "completed", "output", "observed", "captured", "requested"]
    )


def test_errors_are_one_tree() -> None:
    assert all(issubclass(getattr(turnlog, name), TurnlogError) for name in NAMES if name.endswith("Error"))


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    positional, _, keywords = SIGNATURES[name].partition("|")
    parameters = list(inspect.signature(getattr(Ledger, name)).parameters.values())[1:]
    found = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    wanted = positional.split()
    assert len(found) == len(wanted)
    assert [each for each, want in zip(found, wanted, strict=True) if want not in {"1", each}] == []
    assert set(keywords.split()) <= {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize(("name", "parameter"), DEFAULTS)
def test_default(name: str, parameter: str) -> None:
    found = inspect.signature(getattr(Ledger, name)).parameters[parameter].default
    assert found == DEFAULTS[name, parameter]
    assert type(found) is type(DEFAULTS[name, parameter])


def test_open_ledger() -> None:
    parameters = inspect.signature(turnlog.open_ledger).parameters
    assert list(parameters)[:2] == ["url", "read_only"]
    assert parameters["url"].default is None
    assert parameters["read_only"].kind is inspect.Parameter.KEYWORD_ONLY


def test_everything_public_is_described() -> None:
    for name in NAMES:
        assert getattr(turnlog, name).__doc__, name
    for name, method in inspect.getmembers(Ledger, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__doc__, name


def test_importing_turnlog_is_cheap() -> None:
    """Hooks and the status line must not pay for what they do not use."""
    program = "import sys, turnlog; print([n for n in ('apsw', 'httpx', 'rich', 'msgspec') if n in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "[]"
