"""A big made-up history of all three programs with known totals: the ground that readers of histories are timed on.

``python -m tests.bench.corpus`` makes it and prints what is known. It is made once, outside the repository.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Final, Literal

import msgspec

from tests.bench import corpus_claude, corpus_codex, corpus_opencode
from tests.bench.corpus_text import Pool
from tests.bench.corpus_times import DAY_MS, DAYS, FIRST_DAY
from tests.bench.corpus_truth import Book, Key, Row, Sums, Truth

VERSION: Final = 1
"""Raised when the same seed makes other files."""
SHARES: Final = {"claude": 0.52, "codex": 0.38, "opencode": 0.10}
BIG: Final = {"claude": (0.115, 0.06, 0.035, 0.025), "codex": (0.08, 0.045, 0.025)}
"""The biggest conversations, as a share of everything."""
TYPICAL: Final = {"claude": 150_000, "codex": 190_000}
PACKED: Final = 0.08
"""Codex compresses what was idle for a week; these come on top, because little of them is on disk."""


class Job(msgspec.Struct, frozen=True):
    """One conversation with its relatives; independent of every other."""

    provider: Literal["claude", "codex", "opencode"]
    seed: int
    size: int
    start: int
    packed: bool = False


def bench_folder() -> Path:
    """Where benches keep what is made once: ``TURNLOG_BENCH_DIR``, by default below the temporary folder."""
    given = os.environ.get("TURNLOG_BENCH_DIR")
    return Path(given) if given else Path(tempfile.gettempdir()) / "turnlog-bench"


def generate(folder: Path, *, megabytes: int = 850, seed: int = 1) -> Truth:
    """Make the history below ``folder`` unless it is there already, with two processes; about a minute for 850 MB."""
    marker = folder / "truth.json"
    made_by = [VERSION, megabytes, seed]
    if marker.exists():
        truth = msgspec.json.decode(marker.read_bytes(), type=Truth)
        if truth.made_by == made_by and truth.folder == str(folder):
            return truth
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "home").mkdir(parents=True)
    _Worker.pool, _Worker.folder = Pool(seed, megabytes=min(24, max(2, megabytes // 4))), folder
    book = Book()
    # Inherited by fork: building the text again in each process would cost more than it saves.
    with multiprocessing.get_context("fork").Pool(2) as processes:
        for rows in processes.imap_unordered(_Worker.run, _jobs(megabytes, seed)):
            book.merge(rows)
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix in {".jsonl", ".zst", ".db"}]
    truth = Truth(
        folder=str(folder),
        made_by=made_by,
        bytes=sum(path.stat().st_size for path in files),
        files=len(files),
        rows=[Row(*key, sums) for key, sums in sorted(book.rows.items())],
    )
    marker.write_bytes(msgspec.json.encode(truth))
    return truth


class _Worker:
    pool: Pool
    folder: Path

    @classmethod
    def run(cls, job: Job) -> list[tuple[Key, Sums]]:
        book = Book()
        if job.provider == "claude":
            corpus_claude.Family(cls.folder / "claude", cls.pool, book, job.seed, job.size, job.start).write()
        elif job.provider == "codex":
            tree = corpus_codex.Tree(
                cls.folder / "codex", cls.pool, book, job.seed, job.size, job.start, packed=job.packed
            )
            tree.write()
        else:
            corpus_opencode.Database(cls.folder / "data", cls.pool, book, job.seed, job.size).write()
        return list(book.rows.items())


def _jobs(megabytes: int, seed: int) -> list[Job]:
    """Biggest first. Sizes are log-normal as real ones are: many small conversations, a few huge ones."""
    rng = random.Random(seed)
    size = megabytes * 840_000  # copies of forked and resumed conversations come on top
    jobs = [Job("opencode", rng.getrandbits(32), int(size * SHARES["opencode"]), 0)]
    for provider in ("claude", "codex"):
        rest = size * SHARES[provider]
        sizes = [int(size * share) for share in BIG[provider]]
        rest -= sum(sizes)
        while rest > 0:
            sizes.append(min(int(rng.lognormvariate(0, 1.2) * TYPICAL[provider] / 2), 12_000_000) + 8_000)
            rest -= sizes[-1]
        jobs += [Job(provider, rng.getrandbits(32), each, _start(rng)) for each in sizes]
    packed = size * PACKED
    while packed > 0:
        jobs.append(Job("codex", rng.getrandbits(32), rng.randint(30_000, 900_000), _start(rng) // 2, packed=True))
        jobs[-1] = msgspec.structs.replace(jobs[-1], start=FIRST_DAY + rng.randint(0, 20 * DAY_MS))
        packed -= jobs[-1].size
    return sorted(jobs, key=lambda job: -job.size)


def _start(rng: random.Random) -> int:
    return FIRST_DAY + rng.randint(0, (DAYS - 5) * DAY_MS)


if __name__ == "__main__":
    known = generate(bench_folder() / "corpus")
    print(f"{known.folder}: {known.bytes / 1e6:,.0f} MB in {known.files:,} files")
    for name in SHARES:
        print(f"  {name}: {known.total(provider=name)}")
