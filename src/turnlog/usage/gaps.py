"""The reasons why a total is only a lower bound (D6), each made in one place.

``stream`` is a stream id; a gap of a whole provider turn names ``native:<thread>:<turn>``. ``seq`` is the ledger row to
blame. ``before`` and ``after`` are values of ``counter``; for Codex they count from the turn's baseline, except where a
turn begins below its predecessor: there they are the thread's lifetime totals, the only numbers both turns share.
"""

from __future__ import annotations

from turnlog.model import Gap

Number = int | float | None


def start_unknown(stream: str, seq: int, counter: str | None = None) -> Gap:
    """Tell that the stream may have begun before what was seen. Once per stream (D6)."""
    return Gap(kind="start_unknown", stream=stream, seq=seq, counter=counter)


def decrease(stream: str, seq: int, counter: str, before: Number, after: Number) -> Gap:
    """Tell that a counter that can only grow was reported smaller; the larger value stays (4.3 rule 9, D16)."""
    return Gap(kind="decrease", stream=stream, seq=seq, counter=counter, before=before, after=after)


def counter_reset(stream: str, seq: int, counter: str, before: int, after: int) -> Gap:
    """Tell that a turn began below its predecessor's last total: a new epoch with base 0 (D16)."""
    return Gap(kind="counter_reset", stream=stream, seq=seq, counter=counter, before=before, after=after)


def order(seq: int, stream: str | None = None, *, before: int, after: int) -> Gap:
    """Tell that an envelope or observation number did not rise (4.3 rules 2 and 7)."""
    return Gap(kind="order", stream=stream, seq=seq, before=before, after=after)


def schema(seq: int, stream: str | None = None, counter: str | None = None) -> Gap:
    """Tell that a row, or one value of it, has another shape than its schema says; nothing is invented from it."""
    return Gap(kind="schema", stream=stream, seq=seq, counter=counter)


def unknown_type(seq: int) -> Gap:
    """Tell that an envelope has a type this version does not know (4.3 rule 4)."""
    return Gap(kind="unknown_type", seq=seq)


def counter_kind(seq: int, stream: str) -> Gap:
    """Tell that a recorder counted in another way than cumulatively; the receipt is skipped (4.3 rule 5)."""
    return Gap(kind="counter_kind", stream=stream, seq=seq)


def ambiguous_recorder(stream: str) -> Gap:
    """Tell that recorder and native receipts of a turn could not be matched; the larger counts (D18)."""
    return Gap(kind="ambiguous_recorder", stream=stream)


def message_id(seq: int, stream: str) -> Gap:
    """Tell that a receipt does not say which message or call it counts, so it is not counted."""
    return Gap(kind="message_id", stream=stream, seq=seq)


def missing_counter(stream: str, counter: str, seq: int | None = None) -> Gap:
    """Tell that a sum lacks what this stream would have added to it (D15, D17)."""
    return Gap(kind="missing_counter", stream=stream, seq=seq, counter=counter)


def witness_mismatch(stream: str, counter: str, before: Number, after: Number) -> Gap:
    """Tell that two witnesses of one turn disagree.

    When one took the other's place, ``before`` is what it said and ``after`` what counts now (promise 5). When wire and
    file are compared, ``before`` is the wire and ``after`` the file, whichever of them counts (D1).
    """
    return Gap(kind="witness_mismatch", stream=stream, counter=counter, before=before, after=after)


def unfinished(stream: str, seq: int) -> Gap:
    """Tell that a turn began, and that whoever watched it learned no end: what it used after that is unknown."""
    return Gap(kind="unfinished", stream=stream, seq=seq)


def interrupted(stream: str, seq: int) -> Gap:
    """Tell that the zeros of an interrupted result are unknown, not zero (D1)."""
    return Gap(kind="interrupted", stream=stream, seq=seq)


def reasoning_unknown(stream: str, seq: int) -> Gap:
    """Tell that nothing decides whether this message's output includes its reasoning (D15)."""
    return Gap(kind="reasoning_unknown", stream=stream, seq=seq, counter="output")


def overflow(counter: str) -> Gap:
    """Tell that a total does not fit a signed 64-bit integer and is therefore not given (4.3)."""
    return Gap(kind="overflow", counter=counter)


def told(seq: int, kind: str) -> Gap:
    """Tell what the reader of a provider's own files noted: usage that they do not tell (``gap:``, ``compaction:``)."""
    return Gap(kind=kind, seq=seq)


def pruned(stream: str, seq: int) -> Gap:
    """Tell that the receipts behind a stream were removed: what they said is kept and can no longer be checked."""
    return Gap(kind="pruned", stream=stream, seq=seq)
