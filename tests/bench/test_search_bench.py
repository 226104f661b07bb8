"""Search and transcripts over a big imported history, in process and as a person waits for them."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from tests.bench.corpus import bench_folder, generate
from tests.bench.corpus_text import words
from tests.bench.corpus_truth import Truth
from tests.bench.opponents import run, turnlog
from tests.bench.table import Row, best, milliseconds, show
from turnlog import Ledger, open_ledger

pytestmark = [pytest.mark.bench, pytest.mark.timeout(1800)]

MEGABYTES: Final = 850
TOP: Final = 20


@pytest.fixture(scope="module")
def truth() -> Truth:
    return generate(bench_folder() / "corpus", megabytes=MEGABYTES)


@pytest.fixture(scope="module")
def home(truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    own = tmp_path_factory.mktemp("search")
    variables = {**truth.variables, "TURNLOG_LEDGER": f"sqlite:///{own / 'ledger.db'}"}
    run(turnlog("import", "--json"), variables, codes=(0, 3))
    return variables


def test_search_top_twenty_with_snippets(home: dict[str, str]) -> None:
    ledger: Ledger = open_ledger(home["TURNLOG_LEDGER"], read_only=True)
    rows = []
    try:
        for kind, query in (
            ("a common word", "error"),
            ("two words", "error value"),
            ("a rare word", words(random.Random(1))[12_000]),
            ("a phrase", '"is not a"'),
            ("the beginning of a word", "scrib*"),
            ("a word nobody wrote", "zzzyx"),
        ):
            found = ledger.search(query, limit=TOP)
            taken = best(lambda query=query: ledger.search(query, limit=TOP), times=5)  # type: ignore[misc]
            assert all(hit.snippet for hit in found.hits)
            rows.append(
                Row(f"{kind}: {query}", milliseconds(taken), f"{len(found.hits)} hits", "", "≤ 100 ms", taken <= 0.1)
            )
    finally:
        ledger.close()
    show(f"search, top {TOP} with snippets, in process (fastest of 5)", rows)


def test_show_of_the_biggest_session_begins_to_print(truth: Truth, home: dict[str, str]) -> None:
    path = max(Path(truth.folder, "claude").rglob("*.jsonl"), key=lambda each: each.stat().st_size)
    taken = [_first_byte(turnlog("show", f"claude:{path.stem}"), home) for _ in range(4)]
    fastest = min(taken)
    size = path.stat().st_size / 1e6
    show(
        f"show of a session of {size:.0f} MB (fastest of 4)",
        [Row("until the first byte", milliseconds(fastest), "", "", "≤ 300 ms", fastest <= 0.3)],
    )


def _first_byte(argv: list[str], variables: dict[str, str]) -> float:
    env = {"PATH": os.environ["PATH"], "TZ": "UTC", "LANG": "C.UTF-8", **variables}
    begin = time.perf_counter()
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        taken = time.perf_counter() - begin
        process.kill()
    return taken
