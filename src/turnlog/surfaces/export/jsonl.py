"""A conversation as JSON lines: a ``session``, a ``passage`` for each thing said, its ``usage``; so for each subagent.

Every object names its ``type``, its ``session`` and the ``schema_version``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from turnlog.clock import to_rfc3339
from turnlog.surfaces.export.document import SCHEMA_VERSION, Document, Link, Section

__all__ = ["render"]


def render(document: Document) -> Iterator[str]:
    """Yield one line for each object. Instants are RFC 3339; a text is null where it cannot be had."""
    for section in document.sections:
        yield _line("session", _session(section, document))
        for entry in section.entries:
            yield _line(
                "passage",
                {
                    "session": section.session,
                    "turn": entry.turn,
                    "role": entry.role,
                    "at": None if entry.at is None else to_rfc3339(entry.at),
                    "text": entry.text,
                    "name": entry.name,
                    "failed": entry.failed,
                    "path": entry.path,
                    "offset": entry.offset,
                    "seq": entry.seq,
                    "problem": entry.problem,
                },
            )
        yield _line("usage", {"session": section.session, **section.totals})


def _session(section: Section, document: Document) -> dict[str, Any]:
    return {
        "session": section.session,
        "title": section.title,
        "parent": section.parent,
        "redacted": document.redacted,
        "remarks": list(document.remarks),
        "origin": None if section.origin is None else _link(section.origin),
        "related": [_link(link) for link in section.links],
        "record": section.record,
    }


def _link(link: Link) -> dict[str, Any]:
    return {"session": link.session, "title": link.title, "relation": link.relation, "turn": link.turn}


def _line(kind: str, members: dict[str, Any]) -> str:
    # A lone surrogate has no UTF-8: it can only come from an argument or a path.
    value = {"schema_version": SCHEMA_VERSION, "type": kind, **members}
    try:
        return orjson.dumps(value).decode() + "\n"
    except TypeError:
        return orjson.dumps(_whole(value)).decode() + "\n"


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return {name: _whole(each) for name, each in value.items()} if isinstance(value, dict) else value
