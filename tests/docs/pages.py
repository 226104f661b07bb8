"""The documentation as data: pages, code, command lines, tables of members."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


class Page(msgspec.Struct, frozen=True):
    """One Markdown file."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    def blocks(self, language: str | None = None) -> list[str]:
        """Fenced blocks of a language; all without one."""
        return [body for kind, body in _FENCE.findall(self.text) if language in (None, kind)]

    @property
    def prose(self) -> str:
        """The text without fenced blocks."""
        return _FENCE.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        """Inline code, wherever it stands."""
        return _SPAN.findall(self.prose)

    @property
    def anchors(self) -> set[str]:
        return {slug(heading) for heading in _HEADING.findall(self.prose)}

    def section(self, heading: str) -> str:
        """The text below a heading, up to the next one of any level."""
        found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", self.text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"{self.name} has no heading {heading!r}"
        return found[1]


def slug(heading: str) -> str:
    """The anchor that a reader's browser gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
    return kept.replace(" ", "-")


def page(name: str) -> Page:
    path = ROOT / name
    return Page(path, path.read_text(encoding="utf-8"))


def pages() -> list[Page]:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
    return [page(file.relative_to(ROOT).as_posix()) for file in files]


def command_lines(source: Page) -> Iterator[list[str]]:
    """The words after ``turnlog`` of every command line that a page shows."""
    lines = [line for body in source.blocks("sh") for line in body.splitlines()]
    lines += [
        line.removeprefix("$ ") for body in source.blocks("text") for line in body.splitlines() if line[:2] == "$ "
    ]
    lines += source.spans
    for line in lines:
        words = line.partition("  #")[0].strip()
        if words.startswith("turnlog "):
            yield shlex.split(words)[1:]


def make_targets(source: Page) -> Iterator[str]:
    """Every target that a page tells to make."""
    lines = [line for body in source.blocks("sh") for line in body.splitlines()] + source.spans
    for line in lines:
        found = re.match(r"make ([a-z-]+)", line.strip())
        if found:
            yield found[1]


def members(section: str) -> dict[str, dict[str, bool]]:
    """The ``members`` blocks of a section: place → name → whether it may be absent."""
    found: dict[str, dict[str, bool]] = {}
    for body in re.findall(r"^```members\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        for line in body.splitlines():
            place, *names = line.split()
            for name in names:
                found.setdefault(place, {})[name.rstrip("?").removesuffix("[]")] = name.endswith("?")
    return found
