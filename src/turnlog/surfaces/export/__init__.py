"""Conversations as documents: Markdown, a self-contained web page, JSON lines. Pure: sections in, text out.

A renderer takes what was said as it comes and gives its text as it goes; nothing is held of a long conversation.
"""

from __future__ import annotations

from turnlog.surfaces.export.document import RENDERERS, Document, Link, Section, renderer

__all__ = ["RENDERERS", "Document", "Link", "Section", "renderer"]
