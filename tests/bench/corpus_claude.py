"""Made-up Claude Code histories: sessions, subagents, resumed copies, streaming repeats, progress and snapshots."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.corpus_text import Pool
from tests.bench.corpus_times import day_of, stamp, uuid4
from tests.bench.corpus_truth import Book

MODELS: Final = ("claude-opus-4-6", "claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001")
BYTES_PER_CALL: Final = 18_000
MOST_COPIED: Final = 400
PARTIAL: Final = "partial"


class Usage(msgspec.Struct):
    """The last word on one call. ``hour`` is the part of ``write`` kept for an hour; None in logs without the split."""

    fresh: int
    write: int
    read: int
    output: int
    hour: int | None

    def text(self, output: int) -> str:
        split = ""
        if self.hour is not None:
            five = self.write - self.hour
            split = f'"cache_creation":{{"ephemeral_5m_input_tokens":{five},"ephemeral_1h_input_tokens":{self.hour}}},'
        return (
            f'{{"input_tokens":{self.fresh},"cache_creation_input_tokens":{self.write},"cache_read_input_tokens":'
            f'{self.read},{split}"output_tokens":{output},"service_tier":"standard","inference_geo":"not_available"}}'
        )


class Family:
    """One session with its subagents and perhaps a copy that was resumed from it, about ``size`` bytes in all."""

    def __init__(self, folder: Path, pool: Pool, book: Book, seed: int, size: int, start: int) -> None:
        self.rng = random.Random(seed)
        self.pool, self.book, self.size = pool, book, size
        self.now = start
        project = f"-home-dev-{pool.word(self.rng)}-{seed % 40}"
        self.cwd = f"/home/dev/{project.rsplit('-', 2)[1]}/{seed % 40}"
        self.folder = folder / "projects" / project
        self.folder.mkdir(parents=True, exist_ok=True)
        self.old = self.rng.random() < 0.3
        self.version = f"2.0.{self.rng.randint(60, 76)}" if self.old else f"2.1.{self.rng.randint(2, 220)}"
        self.model = self.rng.choices(MODELS, (50, 40, 10))[0]
        self.session = uuid4(self.rng)

    def write(self) -> int:
        """Write the files; returns the bytes written."""
        with_agents = self.rng.random() < 0.35 and self.size > 150_000
        share = 0.6 if with_agents else 1.0
        main = Transcript(self, self.session)
        budget = int(self.size * share)
        agents = self.rng.randint(1, 6) if with_agents else 0
        each = int(self.size * (1 - share) / agents) if agents else 0
        while main.size < budget or agents:
            main.turn(self.rng.randint(1, 12), budget)
            if agents:
                agents -= 1
                self._agent(main, each)
        written = self._save(f"{self.session}.jsonl", main.lines)
        if self.old and self.rng.random() < 0.4 and len(main.lines) > 20:
            written += self._resumed(main)
        self.size = written + self.beside
        return self.size

    beside = 0

    def _agent(self, main: Transcript, size: int) -> None:
        """A subagent with its own file; older versions repeat its calls in the parent, sometimes as the only trace."""
        agent_id = f"{self.rng.getrandbits(28):07x}"
        main.call(task=f"toolu_{agent_id}")
        agent = Transcript(self, self.session, agent_id)
        progress: list[bytes] = []
        if self.old:
            agent.mirror = lambda line, at: progress.append(main.agent_progress(line, agent_id, at))
        while agent.size < size:
            agent.turn(self.rng.randint(2, 15), size)
        for line in progress:
            main.add(line)
        main.agent_result(agent_id)
        if self.old and self.rng.random() < 0.05:
            return
        self.beside += self._save(f"{self.session}/subagents/agent-{agent_id}.jsonl", agent.lines)
        meta = self.folder / self.session / "subagents" / f"agent-{agent_id}.meta.json"
        meta.write_text(f'{{"agentType":"Explore","description":"Look around","toolUseId":"toolu_{agent_id}"}}')

    def _resumed(self, main: Transcript) -> int:
        """Before resuming went on in the same file, it began a new one with copies of the lines."""
        session = uuid4(self.rng)
        self.now += self.rng.randint(60_000, 40_000_000)
        resumed = Transcript(self, session)
        for line in main.lines[: min(len(main.lines) * 2 // 3, MOST_COPIED)]:
            resumed.add(line.replace(self.session.encode(), session.encode()))
        resumed.turn(self.rng.randint(1, 6), resumed.size * 2)
        return self._save(f"{session}.jsonl", resumed.lines)

    def _save(self, name: str, lines: Iterable[bytes]) -> int:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = b"\n".join(lines) + b"\n"
        path.write_bytes(data)
        return len(data)


class Transcript:
    """The lines of one file."""

    def __init__(self, family: Family, session: str, agent: str | None = None) -> None:
        self.family, self.rng, self.pool = family, family.rng, family.pool
        self.session, self.agent = session, agent
        self.model = MODELS[2] if agent and self.rng.random() < 0.5 else family.model
        self.lines: list[bytes] = []
        self.size = 0
        self.parent = "null"
        self.context = self.rng.randint(12_000, 30_000)
        self.mirror: Callable[[bytes, int], None] | None = None
        slug = "" if family.old else f'"slug":"{self.pool.word(self.rng)}-{self.pool.word(self.rng)}",'
        mark = f'"agentId":"{agent}",' if agent else ""
        self.base = (
            f'"isSidechain":{"true" if agent else "false"},"userType":"external","cwd":"{family.cwd}","sessionId":'
            f'"{session}","version":"{family.version}","gitBranch":"main",{mark}{slug}'
        )

    def add(self, line: bytes) -> None:
        self.lines.append(line)
        self.size += len(line) + 1

    def turn(self, calls: int, budget: int) -> None:
        """A prompt and the calls that answer it; stops early once the file has its size."""
        self.family.now += self.rng.randint(20_000, 900_000)
        if not self.agent:
            self._snapshot()
        prompt = self.pool.passage(self.rng, self.rng.randint(40, 900), "prose")
        self._user(b'{"role":"user","content":"' + prompt + b'"}', b"")
        for index in range(calls):
            if self.size > budget and index:
                break
            self.call()
        if self.rng.random() < 0.02:
            self._failed()

    def _head(self) -> tuple[bytes, bytes, int]:
        uuid = uuid4(self.rng)
        self.family.now += self.rng.randint(200, 6_000)
        at = self.family.now
        head = f'{{"parentUuid":{self.parent},{self.base}'
        self.parent = f'"{uuid}"'
        return head.encode(), f'"uuid":"{uuid}","timestamp":"{stamp(at)}"'.encode(), at

    def _user(self, message: bytes, rest: bytes) -> None:
        head, tail, _ = self._head()
        self.add(head + b'"type":"user","message":' + message + b"," + tail + rest + b"}")

    def call(self, task: str | None = None) -> None:
        """One answer of the model and the result of its tool; ``task`` runs a subagent, which answers later."""
        rng = self.rng
        if rng.random() < 0.01 and not self.agent:
            self.model = rng.choice(MODELS)
        blocks = rng.choices((1, 2, 3, 4), (22, 42, 28, 8))[0]
        write = rng.randint(120, 4_000)
        hour = None if self.family.old and rng.random() < 0.1 else (0 if self.family.old else write)
        usage = Usage(rng.randint(1, 12), write, self.context, rng.randint(40, 2_400), hour)
        self.context = min(self.context + write, 180_000)
        message_id = f"msg_01{base64.b32encode(rng.randbytes(13)).decode()[:22]}"
        request = f"req_011C{base64.b32encode(rng.randbytes(12)).decode()[:20]}"
        tool = task or f"toolu_01{base64.b32encode(rng.randbytes(13)).decode()[:22]}"
        first = 0
        for index in range(blocks):
            last = index == blocks - 1
            output = usage.output if last else min(usage.output, rng.randint(1, 10))
            content = self._tool_use(tool, task=task is not None) if last else self._speech(thinking=index == 0)
            message = (
                f'"message":{{"model":"{self.model}","id":"{message_id}","type":"message","role":"assistant","content":['
            ).encode()
            head, tail, at = self._head()
            first = first or at
            line = b"".join(
                (
                    *(head, message, content, b'],"stop_reason":null,"stop_sequence":null,"usage":'),
                    *(
                        usage.text(output).encode(),
                        b'},"requestId":"',
                        request.encode(),
                        b'","type":"assistant",',
                        tail,
                    ),
                    b"}",
                )
            )
            self.add(line)
            if self.mirror is not None:
                self.mirror(line, at)
        self.family.book.call(
            "claude",
            self.model,
            day_of(first),
            fresh=usage.fresh,
            output=usage.output,
            read=usage.read,
            write=usage.write,
            hour=usage.hour or 0,
            reasoning=0,
        )
        if task is None:
            self._result(tool)

    def _speech(self, *, thinking: bool) -> bytes:
        if thinking:
            text = self.pool.passage(self.rng, self.rng.randint(100, 1_400), "prose")
            signature = base64.b64encode(self.rng.randbytes(self.rng.randint(150, 600)))
            return b'{"type":"thinking","thinking":"' + text + b'","signature":"' + signature + b'"}'
        return b'{"type":"text","text":"' + self.pool.passage(self.rng, self.rng.randint(60, 1_500), "prose") + b'"}'

    def _tool_use(self, tool: str, *, task: bool) -> bytes:
        rng = self.rng
        head = f'{{"type":"tool_use","id":"{tool}","name":'.encode()
        if task:
            prompt = self.pool.passage(rng, rng.randint(200, 2_000), "prose")
            return head + b'"Task","input":{"description":"Look around","prompt":"' + prompt + b'"}}'
        path = f"{self.family.cwd}/src/{self.pool.word(rng)}.py".encode()
        kind = rng.random()
        if kind < 0.2:
            old, new = (self.pool.passage(rng, rng.randint(200, 1_600), "code") for _ in range(2))
            return b"".join(
                (
                    head,
                    b'"Edit","input":{"file_path":"',
                    path,
                    b'","old_string":"',
                    old,
                    b'","new_string":"',
                    new,
                    b'"}}',
                )
            )
        if kind < 0.28:
            text = self.pool.passage(rng, rng.randint(1_000, 12_000), "code")
            return head + b'"Write","input":{"file_path":"' + path + b'","content":"' + text + b'"}}'
        if kind < 0.6:
            return head + b'"Read","input":{"file_path":"' + path + b'"}}'
        command = self.pool.passage(rng, 120, "prose")
        return head + b'"Bash","input":{"command":"rg -n ' + command + b'","description":"Look for it"}}'

    def _result(self, tool: str) -> None:
        rng = self.rng
        size = min(int(rng.lognormvariate(8.3, 1.0)), 60_000)
        text = self.pool.passage(rng, size)
        if rng.random() < 0.15:
            for _ in range(rng.randint(1, 4)):
                self._progress(text[: rng.randint(200, 1_500)].rpartition(b" ")[0], tool)
        content = f'{{"role":"user","content":[{{"tool_use_id":"{tool}","type":"tool_result","content":"'.encode()
        rest = b',"toolUseResult":{"stdout":"' + text + b'","stderr":"","interrupted":false,"isImage":false}'
        self._user(content + text + b'"}]}', rest)

    def _progress(self, output: bytes, tool: str) -> None:
        head, tail, _ = self._head()
        clean = output.rstrip(b"\\")
        data = b'"type":"progress","data":{"type":"bash_progress","output":"' + clean + b'","fullOutput":"' + clean
        rest = f'","elapsedTimeSeconds":2,"totalLines":7}},"parentToolUseID":"{tool}",'.encode()
        self.add(head + data + rest + tail + b"}")

    def _snapshot(self) -> None:
        uuid, at = uuid4(self.rng), stamp(self.family.now)
        files = ",".join(
            f'"src/{self.pool.word(self.rng)}.py":{{"backupFileName":"{self.rng.getrandbits(64):016x}@v1","version":1,'
            f'"backupTime":"{at}"}}'
            for _ in range(self.rng.randint(0, 9))
        )
        self.add(
            f'{{"type":"file-history-snapshot","messageId":"{uuid}","snapshot":{{"messageId":"{uuid}",'
            f'"trackedFileBackups":{{{files}}},"timestamp":"{at}"}},"isSnapshotUpdate":false}}'.encode()
        )

    def _failed(self) -> None:
        """An answer that no model gave: it is no call."""
        head, tail, _ = self._head()
        usage = Usage(0, 0, 0, 0, 0).text(0)
        self.add(
            head
            + f'"message":{{"id":"{uuid4(self.rng)}","model":"<synthetic>","role":"assistant","type":"message","usage":'
            f'{usage},"content":[{{"type":"text","text":"API Error: 529 Overloaded"}}]}},"type":"assistant",'.encode()
            + b'"isApiErrorMessage":true,'
            + tail
            + b"}"
        )

    def agent_progress(self, line: bytes, agent: str, at: int) -> bytes:
        """The parent's copy of a subagent's line, made at the same moment."""
        start, end = line.index(b'"message":{'), line.index(b',"type":"assistant","uuid"')
        uuid = uuid4(self.rng)
        inner = f'{{"type":"assistant","timestamp":"{stamp(at)}",'.encode() + line[start:end] + b"}"
        return b"".join(
            (
                f'{{"parentUuid":{self.parent},{self.base}"type":"progress","data":{{"message":'.encode(),
                inner,
                b',"normalizedMessages":[],"type":"agent_progress","prompt":"Look around","agentId":"' + agent.encode(),
                f'"}},"toolUseID":"agent_{agent}","parentToolUseID":"toolu_{agent}","uuid":"{uuid}",'.encode(),
                f'"timestamp":"{stamp(at)}"}}'.encode(),
            )
        )

    def agent_result(self, agent: str) -> None:
        """The result of the tool that ran a subagent sums usage up: it is no call."""
        text = self.pool.passage(self.rng, 1_500, "prose")
        content = (
            f'{{"role":"user","content":[{{"tool_use_id":"toolu_{agent}","type":"tool_result","content":"'.encode()
        )
        usage = Usage(5, 900, 40_000, 700, 0).text(700)
        told = f'{{"status":"completed","agentId":"{agent}","totalTokens":41605,"usage":{usage}}}'
        self._user(content + text + b'"}]}', f',"toolUseResult":{told}'.encode())
