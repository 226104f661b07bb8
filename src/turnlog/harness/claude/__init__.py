"""Claude Code through ``claude -p`` with stream-json both ways (semantics 6.4, providers.md §4)."""
