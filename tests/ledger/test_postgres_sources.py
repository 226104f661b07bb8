"""Two machines that import into one ledger may have files of the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.intake.plain import READER, call
from tests.postgres_server import PostgresSetup, shared
from turnlog.intake.importer import import_sources
from turnlog.ledger import homes, open_store, shown


def test_a_path_is_a_file_of_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = PostgresSetup(shared()).url()
    path = tmp_path / "logs" / "a.jsonl"
    path.parent.mkdir()
    for name, session in (("one", "a"), ("two", "b")):
        monkeypatch.setattr(homes, "home_id", lambda name=name: name)
        path.write_bytes(call(session, "t1", f"m-{name}") + b"\n")
        store = open_store(url)
        done = import_sources(store, [READER], roots=[path.parent], variables={})
        assert (done.new, done.files) == (1, 1)
        again = import_sources(store, [READER], roots=[path.parent], variables={})
        assert again.files == 0
        assert len(store.imports.sources()) == 1
        store.close()
    monkeypatch.setattr(homes, "home_id", lambda: "one")
    store = open_store(url)
    # The other machine's file is none of ours: it is neither replaced nor gone.
    assert [row.path for row in store.imports.sources()] == [str(path)]
    store.close()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgresql://me:s3cret@db.example/turnlog", "postgresql://me@db.example/turnlog"),
        ("postgres://me:s3cret@db.example/%ZZ", "postgres://db.example/%ZZ"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_a_ledger_is_shown_without_its_password(url: str, told: str) -> None:
    assert "s3c" not in shown(url)
    assert shown(url) == told
