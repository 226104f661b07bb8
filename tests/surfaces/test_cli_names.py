"""Conversations are named as people see them: a provider's id may stand without its provider."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnlog import InvalidError, MissingError, open_ledger


def test_a_providers_id_names_its_conversation_without_the_provider(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        ledger.create_session(id="claude:5c03-aa", cwd="/x", provider="claude")
        ledger.create_session(id="codex:0199-aa", cwd="/x", provider="codex")
        ledger.create_session(id="opencode:5c99", cwd="/x", provider="opencode")
        assert ledger.find_session("5c03").id == "claude:5c03-aa"
        assert ledger.find_session("0199").id == "codex:0199-aa"
        with pytest.raises(InvalidError):
            ledger.find_session("5c")
        with pytest.raises(MissingError):
            ledger.find_session("7")
