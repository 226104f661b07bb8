"""A quick look at a rollout decodes few lines, and those only in part: it counts as if each were decoded whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.scan_files import codex_line, count, meta, record, scan, started, totals, used, uuid7
from turnlog.harness.codex.quick import Quick, _Rollout
from turnlog.harness.quick import Look
from turnlog.harness.reading import Source

P, C, T1, T2 = (uuid7(number) for number in (0, 5_000_000, 1000, 2000))
LIMITS = {"limit_id": "codex", "primary": {"used_percent": 9.5, "window_minutes": 300}, "secondary": None}


def spelled(line: Any) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()


def written(folder: Path, lines: Sequence[bytes]) -> Source:
    name = f"rollout-2026-09-01T11-00-00-{P}.jsonl"
    path = folder / "codex" / "sessions" / "2026" / "09" / "01" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines) + b"\n")
    return Source("codex", str(path), "jsonl", P, 0)


def looked(source: Source) -> Look:
    return Quick(lambda thread: None).look(source)


def decoded(source: Source) -> Look:
    """Look with every line decoded whole."""
    with patch.object(_Rollout, "line", _Rollout._any):
        return looked(source)


def told(look: Look) -> tuple[Any, ...]:
    return look.calls, look.loose, look.troubles, look.cwds


# --- spellings of one line


def with_limits(line: Any) -> Any:
    line["payload"]["rate_limits"] = LIMITS
    return line


LINE = spelled(with_limits(count(used(900, 30), used(800, 20, 0), 3, ordinal=7)))
ODD = {
    "keys in another order": json.dumps(json.loads(LINE), separators=(",", ":"), sort_keys=True).encode(),
    "spaces": json.dumps(json.loads(LINE)).encode(),
    "a float": LINE.replace(b'"output_tokens":30', b'"output_tokens":30.0'),
    "a negative": LINE.replace(b'"output_tokens":30', b'"output_tokens":-30'),
    "a text": LINE.replace(b'"output_tokens":30', b'"output_tokens":"30"'),
    "true": LINE.replace(b'"output_tokens":30', b'"output_tokens":true'),
    "null": LINE.replace(b'"output_tokens":30', b'"output_tokens":null'),
    "too big": LINE.replace(b'"output_tokens":30', b'"output_tokens":9223372036854775808'),
    "much too big": LINE.replace(b'"output_tokens":30', b'"output_tokens":92233720368547758089223372036854775808'),
    "a counter twice": LINE.replace(b'"output_tokens":30', b'"output_tokens":30,"output_tokens":31'),
    "a counter is missing": LINE.replace(b'"cache_write_input_tokens":0,', b""),
    "an unknown counter": LINE.replace(b'"output_tokens":30', b'"output_tokens":30,"new_tokens":4'),
    "no counters": LINE.replace(b'"total_token_usage":{', b'"total_token_usage":{},"old":{'),
    "totals are no object": LINE.replace(b'"total_token_usage":{', b'"total_token_usage":7,"old":{'),
    "totals are missing": LINE.replace(b'"total_token_usage"', b'"other_token_usage"'),
    "last is missing": LINE.replace(b'"last_token_usage"', b'"other_token_usage"'),
    "last is empty": LINE.replace(b'"last_token_usage":{', b'"last_token_usage":{},"old":{'),
    "last is null": LINE.replace(b'"last_token_usage":{', b'"last_token_usage":null,"old":{'),
    "last has a bad counter": LINE.replace(b'"output_tokens":20', b'"output_tokens":-20'),
    "a tier": LINE.replace(b'"rate_limits":', b'"service_tier":"Flex","rate_limits":'),
    "an empty tier": LINE.replace(b'"rate_limits":', b'"service_tier":"","rate_limits":'),
    "a tier in the info": LINE.replace(b'"info":{', b'"info":{"service_tier":"Priority",'),
    "a tier that is a number": LINE.replace(b'"rate_limits":', b'"service_tier":3,"rate_limits":'),
    "no time": LINE.replace(b'"timestamp":"2026-09-01T11:00:03.000Z",', b""),
    "a time that is none": LINE.replace(b"2026-09-01T11:00:03.000Z", b"[trimmed for a test]    "),
    "a time that is a number": LINE.replace(b'"2026-09-01T11:00:03.000Z"', b"1788260403000"),
    "a long number": LINE.replace(b'"ordinal":7', b'"ordinal":18446744073709551616'),
    "a number below zero": LINE.replace(b'"ordinal":7', b'"ordinal":-7'),
    "a number that is none": LINE.replace(b'"ordinal":7', b'"ordinal":"7"'),
    "another type": LINE.replace(b'"event_msg"', b'"new_event"'),
    "another event": LINE.replace(b'"token_count"', b'"token_mount"'),
    "bytes that are no UTF-8": LINE.replace(b'"limit_id":"codex"', b'"limit_id":"co\xffdex"'),
    "letters beyond ASCII": LINE.replace(b'"limit_id":"codex"', '"limit_id":"c\u00f6dex"'.encode()),
    "half a surrogate pair": LINE.replace(b'"limit_id":"codex"', b'"limit_id":"\\ud800"'),
    "a control character": LINE.replace(b'"limit_id":"codex"', b'"limit_id":"co\tdex"'),
    "a leading zero": LINE.replace(b'"window_minutes":300', b'"window_minutes":0300'),
    "a byte-order mark": b"\xef\xbb\xbf" + LINE,
    "NUL bytes behind it": LINE + b"\0\0",
    "a carriage return behind it": LINE + b"\r",
    "two on a line": LINE + spelled(count(used(1000, 40), used(100, 10, 0), 4)),
    "very deep": LINE.replace(b'"secondary":null', b'"secondary":' + b"[" * 5000 + b"]" * 5000),
    "cut in the totals": LINE[:200],
    "cut in the limits": LINE[:-20],
    "cut and gone on with": LINE[:-20] + LINE,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_count_that_is_not_spelled_as_usual_counts_as_if_decoded_whole(tmp_path: Path, odd: bytes) -> None:
    assert odd != LINE
    lines = [spelled(each) for each in (meta(P), *started(T1), count(used(100)))]
    after = [spelled(each) for each in (count(used(2000, 50), used(1100, 20, 0), 5), *started(T2, 6))]
    source = written(tmp_path, [*lines, odd, *after, spelled(count(used(2600, 60), used(600, 10, 0), 7))])
    assert told(looked(source)) == told(decoded(source))


RESPONSE = spelled(record(P, T1, "r1", used(800, 20, 0), used(900, 30), 3, ordinal=7))
ODD_RESPONSES = {
    "keys in another order": json.dumps(json.loads(RESPONSE), separators=(",", ":"), sort_keys=True).encode(),
    "no usage": RESPONSE.replace(b'"usage"', b'"use"'),
    "a float": RESPONSE.replace(b'"output_tokens":20', b'"output_tokens":20.0'),
    "bad totals": RESPONSE.replace(b'"output_tokens":30', b'"output_tokens":-30'),
    "no totals": RESPONSE.replace(b'"thread_token_usage"', b'"other_token_usage"'),
    "empty names": RESPONSE.replace(b'"r1"', b'""').replace(f'"turn_id":"{T1}"'.encode(), b'"turn_id":""'),
    "names that are numbers": RESPONSE.replace(b'"r1"', b"1"),
    "another conversation's": RESPONSE.replace(P.encode(), C.encode()),
    "nobody's": RESPONSE.replace(b'"thread_id"', b'"threat_id"'),
    "a tier": RESPONSE.replace(b'"response_id"', b'"service_tier":"Flex","response_id"'),
    "letters beyond ASCII": RESPONSE.replace(b'"r1"', '"r\u00f6"'.encode()),
    "bytes that are no UTF-8": RESPONSE.replace(b'"r1"', b'"r\xff"'),
    "cut": RESPONSE[:-9],
    "two on a line": RESPONSE + RESPONSE.replace(b'"r1"', b'"r2"'),
    "in another record": RESPONSE.replace(b'"type":"token_usage_record"', b'"type":"x","y":"token_usage_record"'),
}


@pytest.mark.parametrize("odd", ODD_RESPONSES.values(), ids=ODD_RESPONSES)
def test_a_response_that_is_not_spelled_as_usual_counts_as_if_decoded_whole(tmp_path: Path, odd: bytes) -> None:
    assert odd != RESPONSE
    lines = [spelled(each) for each in (meta(P), *started(T1), count(used(100)))]
    source = written(tmp_path, [*lines, odd, spelled(count(used(2000, 50), used(1100, 20, 0), 5))])
    assert told(looked(source)) == told(decoded(source))


def test_a_count_in_the_usual_spelling_is_not_decoded_whole(tmp_path: Path) -> None:
    source = written(tmp_path, [spelled(meta(P)), *map(spelled, started(T1)), LINE, RESPONSE])
    whole: list[bytes] = []
    take = _Rollout._any

    def spy(self: _Rollout, raw: bytes, offset: int) -> None:
        whole.append(raw)
        take(self, raw, offset)

    with patch.object(_Rollout, "_any", spy):
        assert len(looked(source).calls) == 2
    assert whole == [spelled(meta(P)), *map(spelled, started(T1))]


# --- what a line means after others


def test_totals_that_come_back_after_an_odd_line_count_again(tmp_path: Path) -> None:
    first, last = used(100), json.dumps(count(used(300, 30), used(200, 20, 0), 3))
    lines = [*map(spelled, (meta(P), *started(T1), count(first))), last.encode()]
    written(tmp_path, [*lines, spelled(count(first, second=4)), spelled(count(used(900, 90), used(800, 80), 5))])
    assert totals(scan(tmp_path))["output"] == 10 + 20 + 10 + 80


def test_totals_told_before_their_record_and_again_behind_it_explain_nothing(tmp_path: Path) -> None:
    """They are a repetition of those before them: what the record told still explains a later step."""
    small, much, more = used(0, 10), used(100, 10), used(100, 11)
    lines = [meta(P), *started(T1), count(small), count(much, small), record(P, T1, "r1", much, much)]
    source = written(tmp_path, [spelled(line) for line in (*lines, count(much), count(small), count(more, much))])
    assert told(looked(source)) == told(decoded(source))


def test_totals_that_come_back_after_an_exceeded_window_count_again(tmp_path: Path) -> None:
    zero, all_of_it = dict.fromkeys(used(0), 0), used(700, 7)
    lines = [meta(P), *started(T1), record(P, T1, "r1", all_of_it, all_of_it), count(all_of_it)]
    lines += [count(zero | {"total_tokens": 258_400}, second=3), count(all_of_it, second=4)]
    source = written(tmp_path, list(map(spelled, lines)))
    assert told(looked(source)) == told(decoded(source))
    assert totals(scan(tmp_path))["output"] == 14


SIZES = st.sampled_from([used(0), used(100), used(100, 11), used(300, 30), used(900, 90), used(1200, 120, 0)])
LAST = st.one_of(st.none(), SIZES)
SECONDS = st.integers(0, 59)
TURNS = st.sampled_from([T1, T2])
LINES = st.one_of(
    st.builds(lambda total, last, second: [count(total, last, second)], SIZES, LAST, SECONDS),
    st.builds(lambda total, last, second: [with_limits(count(total, last, second))], SIZES, LAST, SECONDS),
    st.builds(
        lambda thread, turn, name, usage, total, second: [record(thread, turn, name, usage, total, second)],
        st.sampled_from([P, P, C]),
        TURNS,
        st.sampled_from(["r1", "r2", "r3"]),
        SIZES,
        SIZES,
        SECONDS,
    ),
    st.builds(started, TURNS, SECONDS),
    st.builds(lambda tier: [codex_line("turn_context", {"turn_id": T1, "service_tier": tier}, 3)], st.text(max_size=2)),
)
SPELLINGS = st.sampled_from([spelled, spelled, spelled, lambda line: json.dumps(line).encode()])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    forked=st.booleans(),
    numbered=st.booleans(),
    groups=st.lists(st.tuples(LINES, SPELLINGS), max_size=14),
    again=st.integers(0, 5),
    cut=st.integers(0, 600),
)
def test_any_lines_count_as_if_each_were_decoded_whole(
    tmp_path: Path, *, forked: bool, numbered: bool, groups: list[tuple[list[Any], Any]], again: int, cut: int
) -> None:
    """Numbered or not, with an end that was written twice, and the last line cut."""
    told_of = [(meta(P, forked_from_id=C) if forked else meta(P), spelled)]
    told_of += [(line, spell) for group, spell in groups for line in group]
    lines = [
        spell({"timestamp": line["timestamp"], "ordinal": number, **line} if numbered else line)
        for number, (line, spell) in enumerate(told_of)
    ]
    lines += lines[len(lines) - again :] if again < len(lines) else []
    if cut < len(lines[-1]):
        lines[-1] = lines[-1][:cut]
    source = written(tmp_path, lines)
    assert told(looked(source)) == told(decoded(source))
