"""``turnlog export``: whole documents, safe to open and to hand on."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.surfaces import histories
from tests.surfaces.conftest import Turnlog
from tests.surfaces.scenes import Scene

MAIN, CHILD = f"codex:{histories.MAIN}", f"codex:{histories.CHILD}"
SECRET = "sk-live-abcdef1234567890abcd"


@pytest.fixture
def imported(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/ledger.db"
    histories.write(tmp_path / "codex")
    histories.read(url, tmp_path / "codex")
    return url


class Page(HTMLParser):
    """What a browser would see: elements that are open, attributes, text."""

    VOID = frozenset({"meta", "br", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("form", ["md", "html", "jsonl"])
def test_secrets_are_redacted_and_it_is_said_unless_told_otherwise(turnlog_: Turnlog, imported: str, form: str) -> None:
    redacted = turnlog_("export", MAIN, "--format", form)
    plain = turnlog_("export", MAIN, "--format", form, "--no-redact")
    assert (redacted.code, plain.code) == (0, 0)
    assert SECRET not in redacted.out
    assert SECRET in plain.out
    if form == "jsonl":
        assert [json.loads(each.lines[0])["redacted"] for each in (redacted, plain)] == [True, False]
    else:
        assert "Secrets that were recognised are replaced by [redacted]" in redacted.out
        assert "Nothing is redacted: this may contain secrets." in plain.out


def test_markdown(turnlog_: Turnlog, imported: str) -> None:
    text = turnlog_("export", MAIN).out
    assert text.startswith("# please fix the login")
    for part in (
        f"- session: {MAIN}\n- provider: codex\n- model: gpt-5.5-mini\n- folder: /home/me/app\n",
        "### User · 2026-02-02 02:40:04 UTC\n\n> please fix the login \\<b>test\\</b>\n> ```py\n> assert 1\n> ```\n",
        "> the **time zone** is wrong\n",
        '**Tool call** `exec_command`\n\n```\n{"cmd": "export api_key=[redacted]"}\n```\n',
        "line 39 of the output\n```\n",
        "It was the `time zone`.\n\n```py\nzone = UTC\n```\nFixed \\<script>alert(1)\\</script>.\n",
        "**Tool result** — failed\n\n```\nProcess exited with code 2\nOutput:\nboom\n```\n",
        "→ subagent: [",
        "- subagent of: [please fix the login",
        "> look around\n",
        "## Usage\n",
        "input 800 · cache read 200",
    ):
        assert part in text
    target = re.search(r"→ subagent: \[.*\]\(#(s-[0-9a-f]+)\)", text)
    assert target is not None
    assert f'<a id="{target[1]}"></a>' in text
    assert "\x1b" not in text


def test_html_is_one_closed_page_that_fetches_and_runs_nothing(turnlog_: Turnlog, imported: str) -> None:
    text = turnlog_("export", MAIN, "--format", "html").out
    page = Page(text)
    assert page.open == []
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "form", "base", "b", "video", "audio"} - {"b"}
    for tag, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on") or name in {"src", "srcset", "style"}}
        if tag == "a":
            assert (attributes["href"] or "").startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    shown = "".join(page.text)
    assert "Fixed <script>alert(1)</script>." in shown
    assert "please fix the login <b>test</b>" in shown
    assert "line 39 of the output" in shown
    assert "input 800 · cache read 200" in shown
    ids = {attributes.get("id") for _, attributes in page.tags}
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert len(links) == 2  # to the subagent, and back
    assert {str(link)[1:] for link in links} <= ids
    assert "<details><summary>Tool call <code>exec_command</code>" in text
    assert '<details class="failed"><summary>Tool result · failed' in text
    assert "<pre>zone = UTC</pre>" in text
    assert "prefers-color-scheme:dark" in text


def test_jsonl_has_an_object_for_each_thing_said(turnlog_: Turnlog, imported: str) -> None:
    lines = [json.loads(line) for line in turnlog_("export", MAIN, "--format", "jsonl").lines]
    assert {line["schema_version"] for line in lines} == {1}
    sections = [(line["type"], line["session"]) for line in lines if line["type"] != "passage"]
    assert sections == [("session", MAIN), ("usage", MAIN), ("session", CHILD), ("usage", CHILD)]
    said = [line for line in lines if line["type"] == "passage" and line["session"] == MAIN]
    assert [line["role"] for line in said] == [
        "user",
        "reasoning",
        "tool_input",
        "tool_output",
        "assistant",
        "user",
        "tool_input",
        "tool_output",
        "assistant",
    ]
    first = said[0]
    assert first["text"].startswith("please fix the login\x1b[0m")  # a program gets what was said
    assert (first["turn"], first["at"], first["seq"], first["problem"]) == (
        "turn-1",
        "2026-02-02T02:40:04.000Z",
        None,
        None,
    )
    assert first["path"].endswith(f"{histories.MAIN}.jsonl")
    assert first["offset"] > 0
    assert [line["failed"] for line in said if line["role"] == "tool_output"] == [False, True]
    head = lines[0]
    assert [(each["session"], each["relation"]) for each in head["related"]] == [(CHILD, "subagent")]
    assert head["record"]["cwd"] == "/home/me/app"
    usage = next(line for line in lines if line["type"] == "usage")
    assert (usage["tokens"]["input"], usage["tokens"]["cache_read"], usage["tokens"]["output"]) == (800, 200, 50)


def test_a_subagent_by_itself_links_to_where_it_came_from(turnlog_: Turnlog, imported: str) -> None:
    text = turnlog_("export", CHILD).out
    assert "- subagent of: please fix the login" in text
    assert MAIN in text
    assert "(#" not in text


def test_a_driven_conversation_is_exported_from_its_receipts(turnlog_: Turnlog, scene: Scene) -> None:
    text = turnlog_("export", "aaaa").out
    assert text.startswith("# Fix the login test\n")
    assert "> fix it\n" in text
    assert "\nIt was the time zone.\nFixed.\n" in text
    assert "input 12,000" in text
    gappy = turnlog_("export", scene.gappy).out
    assert "input ≥1,200,000" in gappy
    assert "- ≥ 1 × schema" in gappy


def test_a_file_is_whole_private_and_named(turnlog_: Turnlog, imported: str, tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    target.write_text("old")
    shown = turnlog_("export", MAIN, "--format", "html", "-o", str(target))
    assert (shown.code, shown.out) == (0, "")
    assert shown.err.endswith("out.html: 11 passages, secrets redacted\n")
    assert target.read_text().endswith("</html>\n")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".out")] == []
    value = turnlog_("export", MAIN, "-o", str(target), "--json").json
    assert (value["format"], value["passages"], value["redacted"]) == ("md", 11, True)


def test_wrong_formats_and_places_are_refused(turnlog_: Turnlog, imported: str, tmp_path: Path) -> None:
    assert turnlog_("export", MAIN, "--format", "pdf").code == 2
    assert turnlog_("export", MAIN, "-o", str(tmp_path)).code == 2
    assert turnlog_("export", MAIN, "-o", str(tmp_path / "none" / "x.md")).code == 2
    assert turnlog_("export", "nobody").code == 1


def test_histories_without_text_say_so_in_the_document(turnlog_: Turnlog, tmp_path: Path) -> None:
    histories.write(tmp_path / "codex")
    histories.read(f"sqlite:///{tmp_path}/ledger.db", tmp_path / "codex", archive=False)
    text = turnlog_("export", MAIN).out
    assert "> Its files were imported without their text.\n" in text
    assert "All done." in text  # answers are receipts


def test_a_pipe_is_written_into_and_stays_one(turnlog_: Turnlog, imported: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert turnlog_("export", MAIN, "-o", str(pipe)).code == 0
    reader.join(30)
    assert read[0].decode() == turnlog_("export", MAIN).out
    assert pipe.is_fifo()
    assert [each.name for each in tmp_path.glob(".pipe*")] == []


def test_of_a_link_what_it_leads_to_is_replaced(turnlog_: Turnlog, imported: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "x.md", tmp_path / "link.md"
    target.write_text("old")
    link.symlink_to(target)
    assert turnlog_("export", MAIN, "-o", str(link)).code == 0
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == turnlog_("export", MAIN).out
