"""Codex through its app-server on a pipe (semantics 6.3, providers.md §3)."""
