from __future__ import annotations

from pathlib import Path

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scan_files import answer, claude, gaps, result, scan, totals
from turnlog.harness.quick import Call
from turnlog.intake.scan_sums import Sheaf, gathered, owners

ONE = {"calls": 1, "input": 10, "output": 120, "cache_read": 30, "cache_write": 20, "cache_write_1h": 15}


def test_a_call_that_is_streamed_in_several_lines_counts_once_with_its_last_output(tmp_path: Path) -> None:
    lines = [answer("m1", 1), answer("m1", 1), result(), answer("m1", 120)]
    claude(tmp_path, "s1.jsonl", lines)
    assert totals(scan(tmp_path)) == ONE


def test_a_missing_request_id_does_not_make_another_call(tmp_path: Path) -> None:
    first = answer("m1", 1)
    del first["requestId"]
    claude(tmp_path, "s1.jsonl", [first, answer("m1", 120)])
    assert totals(scan(tmp_path)) == ONE


def test_an_id_used_again_by_a_gateway_for_another_call_counts_twice(tmp_path: Path) -> None:
    other = answer("m1", 7, requestId="req_2", model="claude-haiku-4-5", usage={"input_tokens": 1})
    claude(tmp_path, "s1.jsonl", [answer("m1", 120), other])
    found = totals(scan(tmp_path))
    assert (found["calls"], found["input"], found["output"]) == (2, 11, 127)


def test_a_resumed_copy_counts_once_also_if_it_was_cut_before_the_last_word(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer("m1", 1), answer("m1", 120)])
    claude(tmp_path, "s0.jsonl", [answer("m1", 1, session="s0"), answer("m2", 8, session="s0", at="12:00:00")])
    found = scan(tmp_path)
    assert totals(found)["output"] == 128
    assert totals(found)["calls"] == 2


def test_a_fork_that_names_its_origin_owns_none_of_the_origins_calls(tmp_path: Path) -> None:
    claude(tmp_path, "a-fork.jsonl", [answer("m1", 120, session="a-fork", forkedFrom={"sessionId": "s1"})])
    claude(tmp_path, "s1.jsonl", [answer("m1", 120)])
    assert totals(scan(tmp_path), session="claude:s1") == ONE


def test_a_subagents_calls_count_once_beside_the_parents_notes_of_progress(tmp_path: Path) -> None:
    inner = {"type": "assistant", "timestamp": "2026-09-01T10:00:01.000Z", **_part(answer("m2", 3))}
    progress = {"type": "progress", "sessionId": "s1", "cwd": "/home/dev/app", "uuid": "u9"}
    progress["data"] = {"type": "agent_progress", "agentId": "a1", "message": inner}  # type: ignore[assignment]
    claude(tmp_path, "s1.jsonl", [answer("m1", 120), progress, result()])
    agent = [answer("m2", 4, isSidechain=True, agentId="a1"), answer("m3", 6, isSidechain=True, agentId="a1")]
    claude(tmp_path, "s1/subagents/agent-a1.jsonl", agent)
    found = scan(tmp_path)
    assert totals(found, session="claude:s1") == ONE
    assert (totals(found, session="claude:s1/a1")["calls"], totals(found, session="claude:s1/a1")["output"]) == (2, 10)


def test_a_subagent_whose_file_is_gone_counts_by_the_parents_notes(tmp_path: Path) -> None:
    inner = {"type": "assistant", "timestamp": "2026-09-01T10:00:01.000Z", **_part(answer("m2", 3))}
    progress = {"type": "progress", "sessionId": "s1", "uuid": "u9"}
    progress["data"] = {"type": "agent_progress", "agentId": "a1", "message": inner}  # type: ignore[assignment]
    claude(tmp_path, "s1.jsonl", [answer("m1", 120), progress])
    assert totals(scan(tmp_path))["output"] == 123


def test_messages_that_claude_wrote_itself_are_no_calls(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer("m0", 0, model="<synthetic>"), answer("m1", 120)])
    assert totals(scan(tmp_path)) == ONE


def test_a_call_belongs_to_the_quarter_of_its_first_line(tmp_path: Path) -> None:
    lines = [answer("m1", 1, at="2026-09-01T23:59:59.000Z"), answer("m1", 120, at="2026-09-02T00:00:03.000Z")]
    claude(tmp_path, "s1.jsonl", lines)
    (bucket,) = scan(tmp_path).buckets["claude:s1"]
    assert bucket.first == bucket.last == 1_788_307_199_000


def test_a_call_without_an_id_is_named_by_its_record(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer(None, 3), answer(None, 4), answer(None, 4)])
    assert totals(scan(tmp_path))["calls"] == 2


def test_without_the_split_the_time_cache_writes_live_is_unknown_not_zero(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer("m1", 120, usage={"cache_creation": None})])
    found = totals(scan(tmp_path))
    assert found["cache_write"] == 20
    assert "cache_write_1h" not in found


def test_advisor_calls_count_beside_the_message_that_made_them(tmp_path: Path) -> None:
    own = {"type": "message", "input_tokens": 10, "output_tokens": 120, "cache_read_input_tokens": 30}
    own["cache_creation_input_tokens"] = 20
    advisor = {"type": "advisor_message", "model": "claude-opus-4-6", "input_tokens": 100, "output_tokens": 9}
    claude(tmp_path, "s1.jsonl", [answer("m1", 120, model="claude-haiku-4-5", usage={"iterations": [own, advisor]})])
    found = scan(tmp_path)
    assert totals(found, model="claude-haiku-4-5")["output"] == 120
    assert totals(found, model="claude-opus-4-6")["output"] == 9


def test_a_counter_that_is_none_is_left_out_and_named(tmp_path: Path) -> None:
    path = claude(tmp_path, "s1.jsonl", [answer("m1", 120), answer("m2", 5, usage={"input_tokens": -4})])
    found = scan(tmp_path)
    assert totals(found)["input"] == 10
    assert totals(found)["output"] == 125
    (problem,) = found.troubles
    assert (problem.path, problem.session, problem.trouble.kind) == (str(path), "claude:s1", "bad_counter")
    assert gaps(found) == {"missing_counter": 2}


def test_a_torn_line_with_the_next_one_glued_to_it_loses_only_itself(tmp_path: Path) -> None:
    whole = orjson.dumps(answer("m1", 120)).decode()
    path = claude(tmp_path, "s1.jsonl", ['{"type":"assistant","mess' + whole, answer("m2", 5)])
    found = scan(tmp_path)
    assert totals(found)["calls"] == 2
    (problem,) = found.troubles
    assert (problem.path, problem.trouble.kind, problem.trouble.offset) == (str(path), "torn", 0)
    assert problem.trouble.length == len('{"type":"assistant","mess')


def test_a_half_written_last_line_does_not_count_and_a_whole_one_without_line_end_does(tmp_path: Path) -> None:
    whole = orjson.dumps(answer("m2", 5)).decode()
    claude(tmp_path, "s1.jsonl", [answer("m1", 120), whole[:-30]], end="")
    claude(tmp_path, "s2.jsonl", [answer("m3", 4, session="s2"), answer("m4", 6, session="s2")], end="")
    assert totals(scan(tmp_path), session="claude:s1") == ONE
    assert totals(scan(tmp_path), session="claude:s2")["output"] == 10


def test_bytes_that_are_no_text_do_not_hide_the_usage_beside_them(tmp_path: Path) -> None:
    line = orjson.dumps(answer("m1", 120)).replace(b"means", b"\xff\xfe")
    path = claude(tmp_path, "s1.jsonl", [])
    path.write_bytes(b"\xef\xbb\xbf" + line + b"\r\n\0\0\0" + orjson.dumps(answer("m2", 5)) + b"\n")
    assert totals(scan(tmp_path))["output"] == 125


def test_a_usage_line_between_huge_lines_is_found(tmp_path: Path) -> None:
    noise = {"type": "progress", "sessionId": "s1", "data": {"type": "hook_progress", "output": "x" * 3_000_000}}
    claude(tmp_path, "s1.jsonl", [noise, answer("m1", 120), noise])
    found = scan(tmp_path)
    assert totals(found) == ONE
    assert found.bytes > 6_000_000


def test_a_line_that_is_too_long_is_left_out_with_its_place(tmp_path: Path) -> None:
    path = claude(tmp_path, "s1.jsonl", [answer("m1", 120)])
    begin = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"type":"assistant","usage":"' + b"x" * (65 << 20) + b'"}\n')
        end = file.tell() - 1
        file.write(orjson.dumps(answer("m2", 5)) + b"\n")
    found = scan(tmp_path)
    assert totals(found)["output"] == 125
    (problem,) = found.troubles
    assert (problem.trouble.kind, problem.trouble.offset) == ("line_too_long", begin)
    assert problem.trouble.length == end - begin


def test_a_file_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer("m1", 120)])
    gone = claude(tmp_path, "s2.jsonl", [answer("m2", 5)])
    gone.unlink()
    gone.symlink_to(tmp_path / "loop")
    (tmp_path / "loop").symlink_to(gone)
    assert totals(scan(tmp_path)) == ONE


def test_speed_and_tier_make_no_difference_to_tokens(tmp_path: Path) -> None:
    claude(tmp_path, "s1.jsonl", [answer("m1", 120, usage={"speed": "fast", "service_tier": "priority"})])
    assert totals(scan(tmp_path)) == ONE


SIGHTINGS = st.builds(
    Call,
    call=st.sampled_from(["claude:a", "claude:b"]),
    session=st.sampled_from(["s1", "s2", "s3"]),
    at=st.integers(0, 3).map(lambda n: n * 900_000),
    model=st.just("m"),
    input=st.integers(0, 5),
    output=st.none() | st.integers(0, 5),
    rivals=st.sampled_from([(), (), ("s1",), ("s2", "s4")]),
)


@given(st.lists(SIGHTINGS, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_sightings_does_not_matter_and_twice_changes_nothing(sightings: list[Call], rng: object) -> None:
    def sums(calls: list[Call]) -> object:
        sheaf = Sheaf()
        sheaf.take("claude", [_copy(call) for call in calls])
        return {
            session: {(each.start, each.kind): _counted(each.sums) for each in buckets}
            for session, buckets in gathered([sheaf.part((), None)], (), None).items()
        }

    mixed = [*sightings, *sightings]
    rng.shuffle(mixed)  # type: ignore[attr-defined]
    assert sums(sightings) == sums(mixed)


def test_of_copies_without_a_word_of_their_origin_the_earliest_owns_the_call() -> None:
    early, late = Call("claude:a", "s2", 5, output=9), Call("claude:a", "s1", 6, output=9)
    (owner,) = owners([late, early])
    assert (owner.session, owner.at, owner.output) == ("s2", 5, 9)


def test_of_copies_the_one_that_tells_more_owns_the_call_even_if_it_is_later() -> None:
    cut, whole = Call("claude:a", "s1", 5, output=2), Call("claude:a", "s2", 6, output=1435)
    (owner,) = owners([cut, whole])
    assert (owner.session, owner.at, owner.output) == ("s2", 6, 1435)


def _part(line: dict[str, object]) -> dict[str, object]:
    return {name: line[name] for name in ("message", "requestId", "uuid")}


def _copy(call: Call) -> Call:
    rivals = tuple(rival for rival in call.rivals if rival != call.session)
    return Call(call.call, call.session, call.at, call.model, input=call.input, output=call.output, rivals=rivals)


def _counted(sums: object) -> object:
    return tuple(getattr(sums, name) for name in ("streams", "input", "output", "gaps"))


def test_a_users_line_that_was_torn_does_not_hide_the_answer_glued_to_it(tmp_path: Path) -> None:
    user = orjson.dumps(result()).decode().replace('"uuid":"u-result",', "")
    head = '{"sessionId":"s1","uuid":"u-result","type":"user","message":{"role":"user","content":"half a wo'
    claude(tmp_path, "s1.jsonl", [head + orjson.dumps(answer("m1", 120)).decode(), user])
    found = scan(tmp_path)
    assert totals(found) == ONE
    assert [(each.trouble.kind, each.trouble.length) for each in found.troubles] == [("torn", len(head))]
