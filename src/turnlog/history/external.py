"""Names that work has elsewhere: issues and pull requests of GitHub, issues of Linear. Read from text, never asked for.

An external id is the same for every spelling of one thing, so that a link finds what was created by its short name.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

_GITHUB_URL: Final = re.compile(
    r"^https?://(?:www\.)?github\.com/([\w.-]+)/([\w.-]+)/(issues|pull)/(\d{1,12})(?:[/?#].*)?$",
    re.ASCII | re.IGNORECASE,
)
_GITHUB_SHORT: Final = re.compile(r"^([\w.-]+)/([\w.-]+)#(\d{1,12})$", re.ASCII)
_LINEAR_URL: Final = re.compile(
    r"^https?://(?:www\.)?linear\.app/([\w.-]+)/issue/([a-z][a-z0-9]{0,9}-\d{1,12})(?:[/?#].*)?$",
    re.ASCII | re.IGNORECASE,
)
_KEY: Final = re.compile(r"^[a-z][a-z0-9]{0,9}-\d{1,12}$", re.ASCII | re.IGNORECASE)
_GITHUB_ID: Final = re.compile(r"^github:([\w.-]+)/([\w.-]+)#(\d+)$", re.ASCII)
_LINEAR_ID: Final = re.compile(r"^linear:(?:([\w.-]+)/)?([A-Z][A-Z0-9]*-\d+)$", re.ASCII)


class External(msgspec.Struct, frozen=True):
    """What a word names elsewhere.

    ``kind``: ``github_issue github_pull github`` (a number alone tells not which), ``linear``, or ``plain`` for a word
    that is only itself. ``external_id`` identifies, ``identifier`` is what people call it. ``others`` are external ids
    that may mean the same thing: a Linear key without its workspace, and with it.
    """

    external_id: str
    identifier: str
    kind: str
    url: str | None = None
    others: tuple[str, ...] = ()


def pull_url(external_id: str) -> str | None:
    """Return the page of a pull request by its external id; None where no page is known."""
    url = parse(external_id).url
    return None if url is None else url.replace("/issues/", "/pull/")


def parse(word: str) -> External:
    """Return what a word names: a link, ``owner/repo#12``, ``ABC-123``, an external id, or itself. O(its length).

    Owners and repositories are compared without case, as GitHub does; what looks like a link but is none of these is
    plain.
    """
    text = word.strip()
    if (found := _GITHUB_URL.match(text)) is not None:
        return _github(found[1], found[2], found[4], "pull" if found[3].lower() == "pull" else "issues")
    if (found := _GITHUB_SHORT.match(text)) is not None:
        return _github(found[1], found[2], found[3], None)
    if (found := _GITHUB_ID.match(text)) is not None:
        return _github(found[1], found[2], found[3], None)
    if (found := _LINEAR_URL.match(text) or _LINEAR_ID.match(text)) is not None:
        return _linear(found[1], found[2])
    if _KEY.match(text):
        return _linear(None, text)
    return External(text, text, "plain")


def _github(owner: str, repository: str, digits: str, page: str | None) -> External:
    number = int(digits)
    kind = {None: "github", "pull": "github_pull", "issues": "github_issue"}[page]
    # GitHub itself leads from the page to the pull request's where the number is one.
    url = f"https://github.com/{owner}/{repository}/{page or 'issues'}/{number}"
    return External(f"github:{owner}/{repository}#{number}".lower(), f"{owner}/{repository}#{number}", kind, url)


def _linear(workspace: str | None, key: str) -> External:
    letters, _, digits = key.upper().partition("-")
    name = f"{letters}-{int(digits)}"
    if workspace is None:
        return External(f"linear:{name}", name, "linear")
    space = workspace.lower()
    url = f"https://linear.app/{space}/issue/{name}"
    return External(f"linear:{space}/{name}", name, "linear", url, (f"linear:{name}",))
