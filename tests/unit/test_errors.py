"""The error tree: one place for exit code, HTTP status and hint."""

from __future__ import annotations

import re

import pytest

from turnlog import errors
from turnlog.errors import TurnlogError

TREE = {
    # What scripts rely on (contract 2): name: (base, code, exit code, HTTP status).
    "TurnlogError": ("Exception", "failed", 1, 500),
    "ConflictError": ("TurnlogError", "conflict", 4, 409),
    "StaleError": ("TurnlogError", "stale", 4, 409),
    "DrivenError": ("StaleError", "driven", 4, 409),
    "MissingError": ("TurnlogError", "missing", 1, 404),
    "InvalidError": ("TurnlogError", "invalid", 2, 400),
    "CorruptError": ("InvalidError", "corrupt", 1, 500),
    "UncertainError": ("TurnlogError", "uncertain", 5, 502),
    "UnavailableError": ("TurnlogError", "unavailable", 1, 503),
    "RefusedError": ("UnavailableError", "refused", 1, 502),
}


def classes() -> dict[str, type[TurnlogError]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, TurnlogError)
    }


@pytest.mark.parametrize("name", TREE)
def test_error(name: str) -> None:
    kind = classes()[name]
    base, code, exit_code, http_status = TREE[name]
    assert (kind.__base__ or object).__name__ == base
    assert (kind.code, kind.exit_code, kind.http_status) == (code, exit_code, http_status)
    assert kind.default_hint
    assert kind.__doc__


def test_the_tree_is_drawn_at_the_head_of_the_file() -> None:
    drawn = {
        match[1]: (int(match[2]), int(match[3]))
        for match in re.finditer(r"(\w+Error) +(\d+) / (\d+) ", errors.__doc__ or "")
    }
    assert drawn == {name: (kind.exit_code, kind.http_status) for name, kind in classes().items()}


@pytest.mark.parametrize("name", classes())
def test_message_and_hint(name: str) -> None:
    kind = classes()[name]
    error = kind("what happened")
    assert (str(error), error.message, error.hint) == ("what happened", "what happened", kind.default_hint)
    assert kind("x", hint="do this").hint == "do this"
    assert kind("x", hint="").hint == ""


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in classes().values()]
    assert len(codes) == len(set(codes))
