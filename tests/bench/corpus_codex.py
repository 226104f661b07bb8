"""Made-up Codex histories: paginated and older rollouts, re-emitted counters, forks of both kinds, compressed files."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Final

import zstandard

from tests.bench.corpus_text import Pool
from tests.bench.corpus_times import day_of, stamp, uuid7
from tests.bench.corpus_truth import Book

MODELS: Final = ("gpt-5.5", "gpt-5.1-codex", "gpt-5-codex")
BYTES_PER_CALL: Final = 20_000
ZERO: Final = (0, 0, 0, 0)
Counters = tuple[int, int, int, int]
"""input (all), cached, output, reasoning."""


class Tree:
    """A conversation of about ``size`` bytes, and sometimes a fork of it. ``packed`` files are compressed."""

    def __init__(self, folder: Path, pool: Pool, book: Book, seed: int, size: int, start: int, *, packed: bool) -> None:
        self.rng = random.Random(seed)
        self.folder, self.pool, self.book, self.size, self.packed = folder, pool, book, size, packed
        self.now = start
        self.paginated = not packed and self.rng.random() < 0.5
        self.cwd = f"/home/dev/{pool.word(self.rng)}/{seed % 40}"
        # The same instructions in each file of one version, as it really is.
        self.instructions = pool.passage(random.Random(seed % 5), 16_000, "prose")

    def write(self) -> int:
        """Write the files; returns the bytes written."""
        fork = self.rng.random() < 0.2 and self.size > 80_000
        own = Rollout(self)
        while own.size < self.size * (0.6 if fork else 1.0):
            own.turn(self.rng.randint(1, 9))
        written = self._save(own)
        if fork:
            child = Rollout(self, own)
            aim = child.size + self.size // 5
            while child.size < aim:
                child.turn(self.rng.randint(1, 9))
            written += self._save(child)
        return written

    def _save(self, rollout: Rollout) -> int:
        began = stamp(rollout.began)
        folder = self.folder / "sessions" / began[:10].replace("-", "/")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"rollout-{began[:19].replace(':', '-')}-{rollout.thread}.jsonl"
        data = b"\n".join(rollout.lines) + b"\n"
        if self.packed:
            data, name = zstandard.compress(data, 3), f"{name}.zst"
        (folder / name).write_bytes(data)
        return len(data)


class Rollout:
    """The lines of one file; ``parent`` makes it a fork."""

    def __init__(self, tree: Tree, parent: Rollout | None = None) -> None:
        self.tree, self.rng, self.pool = tree, tree.rng, tree.pool
        tree.now += self.rng.randint(5_000, 3_600_000)
        self.began = tree.now
        self.thread = uuid7(self.rng, self.began)
        self.model: str = parent.model if parent else self.rng.choices(MODELS, (60, 25, 15))[0]
        self.lines: list[bytes] = []
        self.size = 0
        self.ordinal = 0
        self.total: Counters = parent.total if parent else ZERO
        self.last: Counters = ZERO
        self.turn_total: Counters = ZERO
        self.turn_id = ""
        self.calls = 0
        self.context = self.rng.randint(8_000, 20_000)
        self.meta = self._meta(parent)
        if tree.paginated and parent:
            self.ordinal = parent.ordinal
        self._add("session_meta", self.meta)
        if parent and not tree.paginated:
            # An older fork begins with its parent's lines, dated to the moment of the fork.
            at = f'{{"timestamp":"{stamp(tree.now)}"'.encode()
            for line in parent.lines:
                self._line(at + line[line.index(b",") :])

    def _meta(self, parent: Rollout | None) -> bytes:
        version = "0.171.0" if self.tree.paginated else "0.128.0"
        fork = ""
        if parent:
            fork = f'"forked_from_id":"{parent.thread}",'
            if self.tree.paginated:
                fork += (
                    f'"history_mode":"paginated","history_base":{{"thread_id":"{parent.thread}","end_ordinal_exclusive":'
                    f'{parent.ordinal},"end_byte_offset":{parent.size}}},'
                )
        head = (
            f'{{"session_id":"{self.thread}","id":"{self.thread}",{fork}"timestamp":"{stamp(self.began)}","cwd":'
            f'"{self.tree.cwd}","originator":"codex_cli_rs","cli_version":"{version}","source":"cli",'
            f'"thread_source":"user","model_provider":"openai","base_instructions":{{"text":"'
        ).encode()
        return head + self.tree.instructions + b'"},"git":{"commit_hash":"0123456789abcdef","branch":"main"}}'

    def _line(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line) + 1

    def _add(self, kind: str, payload: bytes) -> None:
        ordinal = ""
        if self.tree.paginated:
            ordinal = f'"ordinal":{self.ordinal},'
            self.ordinal += 1
        head = f'{{"timestamp":"{stamp(self.tree.now)}",{ordinal}"type":"{kind}","payload":'
        self._line(head.encode() + payload + b"}")

    def _event(self, kind: str, rest: bytes) -> None:
        self._add("event_msg", f'{{"type":"{kind}",'.encode() + rest + b"}")

    def _item(self, kind: str, rest: bytes) -> None:
        head = f'"thread_id":"{self.thread}","turn_id":"{self.turn_id}","item":{{"type":"{kind}",'.encode()
        self._event("item_completed", head + rest + f'}},"completed_at_ms":{self.tree.now}'.encode())

    def turn(self, calls: int) -> None:
        """A prompt and the calls that answer it."""
        self.tree.now += self.rng.randint(20_000, 1_200_000)
        self.turn_id = uuid7(self.rng, self.tree.now)
        self.turn_total = ZERO
        second = self.tree.now // 1000
        started = f'"turn_id":"{self.turn_id}","started_at":{second},"model_context_window":258400'
        self._event("task_started", started.encode())
        if self.rng.random() < 0.03:
            self.model = self.rng.choice(MODELS)
        context = (
            f'{{"turn_id":"{self.turn_id}","cwd":"{self.tree.cwd}","approval_policy":"never","sandbox_policy":'
            f'{{"type":"danger-full-access"}},"model":"{self.model}","effort":"high","summary":"auto"}}'
        )
        self._add("turn_context", context.encode())
        prompt = self.pool.passage(self.rng, self.rng.randint(60, 1_200), "prose")
        self._message("user", "input_text", prompt)
        if self.tree.paginated:
            self._item("UserMessage", b'"content":[{"type":"text","text":"' + prompt + b'"}]')
        else:
            self._event("user_message", b'"message":"' + prompt + b'","images":[]')
            if self.calls:
                self._count()
        for index in range(calls):
            self._call(last=index == calls - 1)
        self._event("task_complete", f'"turn_id":"{self.turn_id}","last_agent_message":"done"'.encode())

    def _message(self, role: str, kind: str, text: bytes) -> None:
        head = f'{{"type":"message","role":"{role}","content":[{{"type":"{kind}","text":"'.encode()
        self._add("response_item", head + text + b'"}]}')

    def _call(self, *, last: bool) -> None:
        rng = self.rng
        self.tree.now += rng.randint(1_500, 30_000)
        thought = self.pool.passage(rng, rng.randint(80, 500), "prose")
        secret = base64.b64encode(rng.randbytes(rng.randint(300, 1_100)))
        if self.tree.paginated:
            self._item("Reasoning", b'"summary_text":["' + thought + b'"],"raw_content":[]')
        else:
            self._event("agent_reasoning", b'"text":"' + thought + b'"')
        summary = b'{"type":"reasoning","summary":[{"type":"summary_text","text":"' + thought + b'"}],"content":null,'
        self._add("response_item", summary + b'"encrypted_content":"gAAAAAB' + secret + b'"}')
        cached = rng.randint(self.context // 2, self.context)
        reasoning = rng.randint(0, 600)
        used = (self.context + rng.randint(50, 3_000), cached, reasoning + rng.randint(20, 900), reasoning)
        self.context = min(self.context + rng.randint(100, 4_000), 240_000)
        if last:
            text = self.pool.passage(rng, rng.randint(100, 2_500), "prose")
            self._use(used)
            if self.tree.paginated:
                self._item("AgentMessage", b'"content":[{"type":"Text","text":"' + text + b'"}]')
            else:
                self._event("agent_message", b'"message":"' + text + b'"')
            self._message("assistant", "output_text", text)
            self._count()
            return
        call = f"call_{rng.getrandbits(96):024x}"
        command = self.pool.passage(rng, 150, "prose")
        arguments = b'"arguments":"{\\"cmd\\":\\"rg -n ' + command.replace(b"\\", b"") + b'\\"}"'
        self._add(
            "response_item",
            b'{"type":"function_call","name":"exec_command",' + arguments + f',"call_id":"{call}"}}'.encode(),
        )
        self._use(used)
        text = self.pool.passage(rng, min(int(rng.lognormvariate(9.0, 0.9)), 48_000))
        if self.tree.paginated:
            head = (
                f'"id":"{call}","command":["/bin/bash","-lc","rg"],"status":"completed","aggregated_output":"'.encode()
            )
            self._item("CommandExecution", head + text + b'","exit_code":0')
        else:
            self._count()
        self._add(
            "response_item",
            f'{{"type":"function_call_output","call_id":"{call}","output":"'.encode()
            + b"Wall time: 0.1 seconds\\nProcess exited with code 0\\nOutput:\\n"
            + text
            + b'"}',
        )
        self._count()

    def _use(self, used: Counters) -> None:
        self.total = _plus(self.total, used)
        self.turn_total = _plus(self.turn_total, used)
        self.last = used
        self.calls += 1
        if self.tree.paginated:
            head = (
                f'{{"thread_id":"{self.thread}","turn_id":"{self.turn_id}","session_id":"{self.thread}","root_turn_id":'
                f'"{self.turn_id}","response_id":"resp_{self.rng.getrandbits(100):025x}","usage":{_text(used)},'
                f'"turn_token_usage":{_text(self.turn_total)},"thread_token_usage":{_text(self.total)}}}'
            )
            self._add("token_usage_record", head.encode())
        everything, cached, output, reasoning = used
        self.tree.book.call(
            "codex",
            self.model,
            day_of(self.tree.now),
            fresh=everything - cached,
            output=output,
            read=cached,
            write=0,
            hour=0,
            reasoning=reasoning,
        )

    def _count(self) -> None:
        percent = self.tree.now // 7919 % 100
        info = (
            f'"info":{{"total_token_usage":{_text(self.total)},"last_token_usage":{_text(self.last)},'
            f'"model_context_window":258400}},"rate_limits":{{"limit_id":"codex","primary":{{"used_percent":{percent}.0,'
            f'"window_minutes":300,"resets_at":{self.tree.now // 1000 + 9000}}},"secondary":null,"credits":null}}'
        )
        self._event("token_count", info.encode())


def _plus(one: Counters, two: Counters) -> Counters:
    return (one[0] + two[0], one[1] + two[1], one[2] + two[2], one[3] + two[3])


def _text(counters: Counters) -> str:
    everything, cached, output, reasoning = counters
    return (
        f'{{"input_tokens":{everything},"cached_input_tokens":{cached},"cache_write_input_tokens":0,"output_tokens":'
        f'{output},"reasoning_output_tokens":{reasoning},"total_tokens":{everything + output}}}'
    )
