"""A conversation as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
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

_TOOLS: Final = {"tool_input", "tool_output", "note"}
_FENCE: Final = re.compile(r"^ {0,3}(`{3,}|~{3,})([^`\n]*)$", re.MULTILINE)
_TICKS: Final = re.compile(r"`{3,}")
_MARKS: Final = re.compile(r"([\\`*_{}\[\]<>#|])")
_TAG: Final = re.compile(r"`+[^`]*`+|<(?=[A-Za-z/!?])")


def render(document: Document) -> Iterator[str]:
    """Yield the document piece by piece."""
    usage: list[tuple[str, tuple[str, ...]]] = []
    for number, section in enumerate(document.sections):
        yield from _head(section, document if number == 0 else None)
        yield from _said(section)
        usage.append((section.title, section.usage))
    yield "\n## Usage\n"
    for title, lines in usage:
        yield f"\n{_plain(title)}\n\n" if len(usage) > 1 else "\n"
        yield "".join(f"- {_plain(line)}\n" for line in lines)


def _head(section: Section, document: Document | None) -> Iterator[str]:
    yield f'\n<a id="{anchor(section.session)}"></a>\n\n' if document is None else ""
    yield f"{'#' if document is not None else '##'} {_plain(section.title)}\n\n"
    if document is not None:
        yield "".join(f"> {line}\n" for line in (redaction(document), *document.remarks)) + "\n"
    for name, value in section.facts:
        yield f"- {name}: {_plain(value)}\n"
    if section.origin is not None:
        yield f"- {_link(section.origin)}\n"


def _said(section: Section) -> Iterator[str]:
    speaker: tuple[str, str | None] | None = None
    for each in placed(section):
        if isinstance(each, Link):
            yield f"\n→ {_link(each)}\n"
            speaker = None
        elif each.role in _TOOLS:
            yield f"\n{_tool(each)}\n"
            speaker = None
        else:
            if speaker != (each.role, each.turn):
                speaker = (each.role, each.turn)
                at = when(each.at)
                yield f"\n### {ROLE_NAMES[each.role]}{f' · {at}' if at else ''}\n"
            yield f"\n{_words(each)}\n"


def _words(entry: Entry) -> str:
    if entry.text is None:
        return f"*{_plain(missing(entry))}*"
    text = _balanced(entry.text)
    return text if entry.role == "assistant" else "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _tool(entry: Entry) -> str:
    name = f" `{entry.name.replace('`', '')}`" if entry.name else ""
    label = f"**{ROLE_NAMES[entry.role]}**{name}{' — failed' if entry.failed else ''}"
    return f"{label}\n\n{f'*{_plain(missing(entry))}*' if entry.text is None else _fenced(entry.text)}"


def _balanced(text: str) -> str:
    """Return Markdown that another program wrote: its code fences closed, its tags made text."""
    lines: list[str] = []
    fence: str | None = None
    for line in text.strip("\n").split("\n"):
        mark = _FENCE.match(line)
        if fence is None and mark is not None:
            fence = mark[1]
        elif fence is not None:
            if mark is not None and mark[1].startswith(fence) and not mark[2].strip():
                fence = None
        else:
            lines.append(_TAG.sub(lambda found: "\\<" if found[0] == "<" else found[0], line))
            continue
        lines.append(line)
    if fence is not None:
        lines.append(fence)
    return "\n".join(lines)


def _fenced(text: str) -> str:
    longest = max((len(found[0]) for found in _TICKS.finditer(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text.rstrip(chr(10))}\n{fence}"


def _link(link: Link) -> str:
    name = _plain(link.title)
    if link.inside:
        return f"{link.relation}: [{name}](#{anchor(link.session)})"
    return f"{link.relation}: {name} (`{link.session}`)"


def _plain(text: str) -> str:
    return _MARKS.sub(r"\\\1", " ".join(text.split()))
