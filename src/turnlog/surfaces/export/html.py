"""A conversation as one web page that asks nobody for anything: no scripts, no fonts, no images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import Final

from turnlog.queries.transcript import Entry
from turnlog.surfaces.export.document import (
    ROLE_NAMES,
    Document,
    Link,
    Section,
    anchor,
    missing,
    placed,
    redaction,
    when,
)

__all__ = ["render"]

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""Even if a text found a way through the escaping, the browser would fetch and run nothing."""

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c1e21;--faint:#667;--paper:#fff;--line:#dde;--user:#eef4ff;--code:#f5f6f8;
--bad:#b3261e;--accent:#2457c5}
@media(prefers-color-scheme:dark){:root{--ink:#e4e6ea;--faint:#99a;--paper:#15171a;--line:#2c3038;--user:#1c2738;
--code:#1d2025;--bad:#ff8a80;--accent:#8ab4ff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:56rem;padding:2rem 1rem 4rem;background:var(--paper);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .75rem}h2{font-size:1.2rem;margin:2.5rem 0 .5rem}
h3{font-size:1rem;margin:1rem 0 .25rem}
a{color:var(--accent)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 1rem;font-size:.9rem}
dt{color:var(--faint)}dd{margin:0}
.remark{border-left:3px solid var(--accent);padding:.1rem .75rem;margin:.25rem 0;color:var(--faint);font-size:.9rem}
.said{margin:1rem 0}.said>header{color:var(--faint);font-size:.8rem;margin-bottom:.25rem}
.said>header b{color:var(--ink)}
.user>.text{background:var(--user);border-radius:.6rem;padding:.6rem .9rem}
.reasoning>.text{color:var(--faint);border-left:3px solid var(--line);padding-left:.75rem}
.text{white-space:pre-wrap}
.text code{background:var(--code);border-radius:.25rem;padding:.05em .3em}
pre,.text code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--code);border:1px solid var(--line);border-radius:.4rem;padding:.6rem .8rem;margin:.4rem 0;
white-space:pre-wrap;max-height:32rem;overflow:auto}
details{margin:.4rem 0;font-size:.9rem}summary{cursor:pointer;color:var(--faint)}
summary code{color:var(--ink);font-size:.85rem}summary .hint{opacity:.8}
.failed summary,.missing{color:var(--bad)}
.link{margin:.75rem 0}section.child{border-left:3px solid var(--line);padding-left:1rem}
footer{margin-top:3rem;border-top:1px solid var(--line);font-size:.9rem}
@media print{pre{max-height:none}body{max-width:none}}
"""

_FENCED: Final = re.compile(r"^ {0,3}(`{3,})[^`\n]*\n(.*?)(?:^ {0,3}\1`*[ \t]*$\n?|\Z)", re.MULTILINE | re.DOTALL)
_MARKED: Final = re.compile(r"`([^`\n]+)`|\*\*([^*\n]+)\*\*")
_HINT: Final = 100


def render(document: Document) -> Iterator[str]:
    """Yield the page piece by piece. Every foreign text is escaped."""
    first = True
    usage = ""
    for section in document.sections:
        if first:
            yield (
                '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
                '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
                '<meta name="referrer" content="no-referrer">\n'
                f"<title>{_line(section.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            )
        yield from _section(section, document if first else None)
        first = False
        lines = "".join(f"<li>{_line(line)}</li>" for line in section.usage)
        usage += f"<h3>{_line(section.title)}</h3><ul>{lines}</ul>\n"
    yield f"<footer><h2>Usage</h2>\n{usage}</footer>\n</body>\n</html>\n"


def _section(section: Section, document: Document | None) -> Iterator[str]:
    level, kind = ("h1", "") if document is not None else ("h2", ' class="child"')
    yield f'<section id="{anchor(section.session)}"{kind}>\n<{level}>{_line(section.title)}</{level}>\n'
    if document is not None:
        for remark in (redaction(document), *document.remarks):
            yield f'<p class="remark">{_line(remark)}</p>\n'
    facts = "".join(f"<dt>{_line(name)}</dt><dd>{_line(value)}</dd>" for name, value in section.facts)
    yield f"<dl>{facts}</dl>\n"
    if section.origin is not None:
        yield _link(section.origin)
    speaker: tuple[str, str | None] | None = None
    for each in placed(section):
        if isinstance(each, Link):
            yield _link(each)
            speaker = None
        elif each.role in {"tool_input", "tool_output", "note"} and each.text is not None:
            yield _tool(each)
            speaker = None
        else:
            yield _said(each, headed=speaker != (each.role, each.turn))
            speaker = (each.role, each.turn)
    yield "</section>\n"


def _said(entry: Entry, *, headed: bool) -> str:
    head = f"<header><b>{ROLE_NAMES[entry.role]}</b> {when(entry.at)}</header>" if headed else ""
    if entry.text is None:
        body = f'<div class="missing">{_line(missing(entry))}</div>'
    else:
        body = f'<div class="text">{_text(entry.text)}</div>'
    return f'<article class="said {entry.role}">{head}{body}</article>\n'


def _tool(entry: Entry) -> str:
    text = entry.text or ""
    name = f" <code>{_line(entry.name)}</code>" if entry.name else ""
    word = ROLE_NAMES[entry.role] + (" · failed" if entry.failed else "")
    hint = " ".join(text[: 4 * _HINT].split())
    hint = f"{hint[:_HINT]}…" if len(hint) > _HINT or len(text) > 4 * _HINT else hint
    failed = ' class="failed"' if entry.failed else ""
    return (
        f"<details{failed}><summary>{word}{name} "
        f'<span class="hint">{escape(hint)}</span></summary><pre>{escape(text)}</pre></details>\n'
    )


def _text(text: str) -> str:
    """Return escaped text in which code and strong words stand out; everything else stays as it was written."""
    parts: list[str] = []
    at = 0
    for block in _FENCED.finditer(text):
        parts += [_inline(text[at : block.start()]), f"<pre>{escape(block[2].rstrip(chr(10)))}</pre>"]
        at = block.end()
    parts.append(_inline(text[at:]))
    return "".join(parts)


def _inline(text: str) -> str:
    return _MARKED.sub(
        lambda found: f"<code>{found[1]}</code>" if found[1] else f"<strong>{found[2]}</strong>",
        escape(text.strip("\n")),
    )


def _link(link: Link) -> str:
    title = _line(link.title)
    if link.inside:
        title = f'<a href="#{anchor(link.session)}">{title}</a>'
    else:
        title += f" <code>{_line(link.session)}</code>"
    return f'<p class="link">→ {_line(link.relation)}: {title}</p>\n'


def _line(text: str) -> str:
    return escape(" ".join(text.split()))
