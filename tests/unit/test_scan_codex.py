from __future__ import annotations

from pathlib import Path

import orjson
import zstandard

from tests.unit.scan_files import codex, codex_line, count, gaps, meta, record, scan, started, totals, used, uuid7

P, C, T1, T2, T3 = (uuid7(number) for number in (0, 5_000_000, 1000, 2000, 5_001_000))


def test_totals_that_are_told_again_count_once(tmp_path: Path) -> None:
    lines = [meta(P), *started(T1), count(used(1000)), count(used(1000), second=3), count(used(1000), second=4)]
    codex(tmp_path, P, [*lines, count(used(2500, 25, 90), used(1500, 15, 50), 5)])
    assert totals(scan(tmp_path)) == {
        "calls": 2,
        "input": 2410,
        "output": 25,
        "cache_read": 90,
        "cache_write": 0,
        "reasoning": 12,
    }


def test_records_and_running_totals_of_the_same_responses_count_once(tmp_path: Path) -> None:
    one, both = used(1000), used(2500, 25, 90)
    lines = [
        *(meta(P), *started(T1), record(P, T1, "r1", one, one, ordinal=3), count(one, ordinal=4)),
        *(record(P, T1, "r2", used(1500, 15, 50), both, 3, ordinal=5), count(both, used(1500, 15, 50), 3, ordinal=6)),
        count(both, used(1500, 15, 50), 4, ordinal=7),
    ]
    codex(tmp_path, P, lines)
    found = totals(scan(tmp_path))
    assert (found["calls"], found["input"], found["output"]) == (2, 2410, 25)


def test_a_compaction_that_only_a_record_tells_of_counts(tmp_path: Path) -> None:
    lines = [meta(P), *started(T1), record(P, T1, "r1", used(100), used(100)), count(used(100))]
    lines.append(record(P, T1, "rc", used(4600, 9, 0), used(4700, 19), 3))
    lines.append(codex_line("compacted", {"message": "short", "latest_token_usage_record": {"usage": used(9999)}}, 3))
    codex(tmp_path, P, lines)
    assert totals(scan(tmp_path))["input"] == 60 + 4600


def test_a_forks_copied_history_adds_nothing(tmp_path: Path) -> None:
    history = [*started(T1), count(used(1000)), count(used(2500, 25), used(1500, 15, 0), 3)]
    codex(tmp_path, P, [meta(P), *history])
    own = [*started(T3, 6), count(used(3550, 30), used(1050, 5, 0), 7)]
    codex(tmp_path, C, [meta(C, forked_from_id=P), meta(P), *history, *own])
    found = scan(tmp_path)
    assert totals(found, session=f"codex:{P}")["output"] == 25
    assert totals(found, session=f"codex:{C}") == {
        "calls": 1,
        "input": 1050,
        "output": 5,
        "cache_read": 0,
        "cache_write": 0,
        "reasoning": 3,
    }


def test_a_fork_without_its_parents_file_counts_only_its_own(tmp_path: Path) -> None:
    own = [*started(T3, 6), count(used(3_000_748, 40), used(748, 10, 8), 7)]
    history = [*started(T1), count(used(3_000_000, 30, 8), used(900), 2)]
    codex(tmp_path, C, [meta(C, forked_from_id=P), *history, *own])
    assert totals(scan(tmp_path))["output"] == 10


def test_two_forks_that_did_work_of_equal_size_both_count(tmp_path: Path) -> None:
    other = uuid7(6_000_000)
    codex(tmp_path, P, [meta(P), *started(T1), count(used(1000))])
    for thread, turn in ((C, T3), (other, uuid7(6_001_000))):
        own = [*started(turn, 6), count(used(1540, 20), used(540, 10, 0), 7)]
        codex(tmp_path, thread, [meta(thread, forked_from_id=P), *started(T1), count(used(1000)), *own])
    assert totals(scan(tmp_path))["output"] == 30


def test_a_window_that_was_exceeded_is_no_usage_and_sets_the_counter_back(tmp_path: Path) -> None:
    phantom = dict.fromkeys(used(0), 0) | {"total_tokens": 258_400}
    lines = [meta(P), *started(T1), count(used(80_000, 10)), count(phantom, phantom, 3)]
    codex(tmp_path, P, [*lines, *started(T2, 4), count(used(7000, 4), used(7000, 4), 5)])
    assert totals(scan(tmp_path))["output"] == 14


def test_limits_without_usage_count_nothing(tmp_path: Path) -> None:
    codex(tmp_path, P, [meta(P), *started(T1), count(None), count(used(100))])
    assert totals(scan(tmp_path))["calls"] == 1


def test_a_jump_above_the_last_response_counts_with_its_gap(tmp_path: Path) -> None:
    codex(tmp_path, P, [meta(P), *started(T1), count(used(100)), count(used(900, 30), used(200, 20, 40), 3)])
    found = scan(tmp_path)
    assert totals(found)["output"] == 30
    assert gaps(found) == {"witness_mismatch": 1}


def test_a_compressed_rollout_counts_as_a_plain_one_and_both_count_once(tmp_path: Path) -> None:
    plain = codex(tmp_path, P, [meta(P), *started(T1), count(used(100)), count(used(900, 30), used(800, 20, 0), 3)])
    expected = totals(scan(tmp_path))
    packed = plain.with_name(plain.name + ".zst")
    packed.write_bytes(zstandard.compress(plain.read_bytes()))
    assert totals(scan(tmp_path)) == expected
    plain.unlink()
    assert totals(scan(tmp_path)) == expected


def test_a_compressed_file_that_was_cut_short_gives_what_is_there_and_says_so(tmp_path: Path) -> None:
    filler = [codex_line("response_item", {"type": "message", "text": uuid7(n)}) for n in range(20_000)]
    plain = codex(tmp_path, P, [meta(P), *started(T1), count(used(100)), *filler, count(used(900, 30), second=9)])
    data = zstandard.compress(plain.read_bytes())
    packed = plain.with_name(plain.name + ".zst")
    packed.write_bytes(data[: len(data) // 2])
    plain.unlink()
    found = scan(tmp_path)
    assert totals(found)["output"] == 10
    assert "zst_cut_short" in {each.trouble.kind for each in found.troubles}


def test_model_and_service_are_those_of_the_turn(tmp_path: Path) -> None:
    lines = [meta(P), *started(T1), count(used(100))]
    lines.append(codex_line("turn_context", {"turn_id": T2, "model": "gpt-5-codex"}, 4))
    lines.append(count(used(300, 30), used(200, 20, 0), 5))
    codex(tmp_path, P, lines)
    found = scan(tmp_path)
    assert totals(found, model="gpt-5.5")["output"] == 10
    assert totals(found, model="gpt-5-codex")["output"] == 20
    assert {bucket.kind.service for bucket in found.buckets[f"codex:{P}"]} == {"openai"}


def test_a_line_that_is_not_spelled_as_usual_is_read_all_the_same(tmp_path: Path) -> None:
    codex(tmp_path, P, [meta(P), *started(T1), orjson.dumps(count(used(100)), option=orjson.OPT_SORT_KEYS).decode()])
    assert totals(scan(tmp_path))["output"] == 10


def test_a_torn_line_loses_only_itself_and_is_located(tmp_path: Path) -> None:
    torn = orjson.dumps(count(used(100))).decode()[:200]
    path = codex(tmp_path, P, [meta(P), *started(T1), torn, count(used(900, 30), used(800, 20, 0), 3)])
    found = scan(tmp_path)
    assert totals(found)["output"] == 30
    (problem,) = found.troubles
    assert (problem.path, problem.session, problem.trouble.length) == (str(path), f"codex:{P}", 200)


def test_the_end_of_a_file_written_twice_counts_once(tmp_path: Path) -> None:
    tail = [*started(T1), record(P, T1, "r1", used(100), used(100), ordinal=3), count(used(100), ordinal=4)]
    codex(tmp_path, P, [meta(P), *tail, *tail])
    assert totals(scan(tmp_path))["calls"] == 1
