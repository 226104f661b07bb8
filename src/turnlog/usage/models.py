"""Which price list a model name belongs to: the spellings that agent programs write, told apart explicitly. Pure.

A name is looked up in the list of the service that was called. Where only the name is known, its maker's list is meant.
A name that only begins like a known one is another model.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

_SERVICES: Final = {
    # what agent programs call a service: what price lists call it
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "google",
    "gemini": "google",
    "google-vertex": "google",
    "google-vertex-anthropic": "google",
    "vertex": "google",
    "vertex_ai": "google",
    "amazon-bedrock": "aws",
    "bedrock": "aws",
    "azure": "azure",
    "azure-cognitive-services": "azure",
    "github-copilot": "github-copilot",
    "openrouter": "openrouter",
    "deepseek": "deepseek",
    "xai": "x-ai",
    "x-ai": "x-ai",
    "groq": "groq",
    "mistral": "mistral",
    "mistralai": "mistral",
    "moonshotai": "moonshotai",
    "zai": "zai",
    "zhipuai": "zhipuai",
    "minimax": "minimax",
    "cerebras": "cerebras",
    "cohere": "cohere",
    "perplexity": "perplexity",
    "togetherai": "together",
    "together": "together",
    "fireworks-ai": "fireworks",
    "fireworks": "fireworks",
    "baseten": "baseten",
    "cloudflare-workers-ai": "cloudflare",
    "novita-ai": "novita",
    "novita": "novita",
    "ovhcloud": "ovhcloud",
}

_MAKERS: Final = (
    ("claude", "anthropic"),
    ("gpt-", "openai"),
    ("codex-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini", "google"),
    ("grok", "x-ai"),
    ("deepseek", "deepseek"),
    ("kimi", "moonshotai"),
    ("moonshot", "moonshotai"),
    ("glm", "zai"),
    ("minimax", "minimax"),
    ("mistral", "mistral"),
    ("codestral", "mistral"),
    ("devstral", "mistral"),
)

_WINDOW: Final = re.compile(r"\[\d+[mk]\]$")
_BEDROCK: Final = re.compile(r"(?:[a-z]{2,6}(?:-gov)?\.)?(?:anthropic|amazon|meta|mistral|deepseek|openai)\.")
_COMPACT_DATE: Final = re.compile(r"-(20\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$")
_PLAIN: Final = re.compile(r"(?:[-@]?(?:20\d{6}|20\d\d-\d\d-\d\d|latest|preview|default|v\d+(?::\d+)?))*")
_HALF_DATE: Final = re.compile(r"-20\d\d$")
_REGION: Final = re.compile(r"(?:(?:[a-z]{2,6}(?:-gov)?\.)?anthropic\.)?")


class Name(msgspec.Struct, frozen=True):
    """A model in a price list: ``service`` is the list, ``spellings`` are tried in order."""

    service: str
    spellings: tuple[str, ...]


def bare(model: str) -> str:
    """Return a model's name in small letters, without the mark of a long context window (``[1m]``)."""
    return _WINDOW.sub("", model.strip().lower())


def listed(model: str | None, provider_id: str | None) -> Name | None:
    """Return where a model is priced; None for no model (``<synthetic>``) and for services without a list.

    ``provider_id`` is the service that was called, if known: one that is not known here has no list prices, whatever
    the model is called.
    """
    name = bare(model or "")
    if not name or name.startswith("<"):
        return None
    if name.startswith("arn:"):
        name = name.rpartition("/")[2]
    first, slash, rest = name.partition("/")
    if provider_id is not None:
        service = _SERVICES.get(provider_id.strip().lower())
        if service is not None and slash and _SERVICES.get(first) == service != "openrouter":
            name = rest
    elif slash:
        service, name = _SERVICES.get(first), rest
    elif _BEDROCK.match(name):
        service = "aws"
    elif "@" in name and name.startswith("claude"):
        service = "google"
    else:
        service = next((maker for start, maker in _MAKERS if name.startswith(start)), None)
    if service is None:
        return None
    dashed = _COMPACT_DATE.sub(r"-\1-\2-\3", name)
    return Name(service, (name,) if dashed == name else (name, dashed))


def same_model(name: str, known: str, *, before: bool = False, after: bool = True) -> bool:
    """Tell whether a name is a known one with nothing but a date, a version or ``latest`` behind it.

    ``before`` allows the region that Bedrock writes in front.
    """
    if name.startswith(known):
        known = _HALF_DATE.sub("", known)  # lists abbreviate the dates of a model to their year
    start = name.find(known) if before else 0 if name.startswith(known) else -1
    if start < 0:
        return False
    rest = name[start + len(known) :]
    return bool(_REGION.fullmatch(name[:start]) and (_PLAIN.fullmatch(rest) if after else not rest))
