"""The password of a ledger's URL: in no message, and in nothing that a team's ledger keeps."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests import postgres_server
from tests.postgres_server import PASSWORD
from tests.surfaces.conftest import Turnlog, shell
from turnlog.ledger import shown


@pytest.mark.parametrize(
    ("form", "recorded"),
    [
        (["--ledger", "postgresql://locked:{}@{}"], ["--ledger", "postgresql://locked@{}"]),
        (["--ledger=postgres://locked:{}@{}"], ["--ledger=postgresql://locked@{}"]),
        (["--ledger=postgresql://{1}?user=locked&password={0}"], ["--ledger=postgresql://locked@{}"]),
    ],
)
def test_a_recorded_command_line_holds_no_password(form: list[str], recorded: list[str]) -> None:
    server = postgres_server.shared()
    database = server.new_database()
    server.sql(f"ALTER DATABASE {database} OWNER TO locked", database="postgres")
    place = f"127.0.0.1:{server.port}/{database}"
    words = [word.format(quote(PASSWORD, safe=""), place) for word in form]
    # The agent is missing: the command is recorded, and then it fails.
    done = shell(*words, "run", "--provider", "opencode", "=say", env={"TURNLOG_OPENCODE_BIN": "/nowhere/opencode"})
    assert done.code == 1
    [(command,)] = server.sql("SELECT command FROM execs", database=database)
    assert json.loads(command)[1:] == [
        *(word.format(place) for word in recorded), "run", "--provider", "opencode", "=say"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@secret@127.0.0.1:9/team",  # @ in the password
        "postgresql://me:hunter2/secret@127.0.0.1:9/team",  # / in the password
        "postgresql://me:hun@ter2/secret@127.0.0.1:9/team",
        "postgresql://me:hun?ter2@secret@127.0.0.1:9/team",
        "postgresql:/me:hunter2secret@127.0.0.1/team",
        "me:hunter2secret@127.0.0.1/team",
        "mysql://me:hunter2@secret@127.0.0.1/team",
    ],
)
def test_a_password_that_was_not_escaped_is_not_shown(turnlog_: Turnlog, url: str) -> None:
    for words in (["sessions"], ["verify"], ["doctor"], ["ledger", "push", url]):
        said = turnlog_("--ledger", url, *words)
        assert said.code != 0
        for part in ("hunter2", "secret", "hun?ter2", "ter2"):
            assert part not in said.err + said.out
    assert turnlog_("--ledger", url, "sessions").code == 2


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://127.0.0.1:9/team?user=me@corp&password=x", "postgresql://me%40corp@127.0.0.1:9/team"),
        ("postgresql://me:pa?s@h/team", "postgresql://me@h/team"),
        ("postgresql://me:p@a/s@h/team", "postgresql://h/team"),
    ],
)
def test_an_at_sign_in_its_place_is_no_mistake(url: str, wanted: str) -> None:
    assert shown(url) == wanted
