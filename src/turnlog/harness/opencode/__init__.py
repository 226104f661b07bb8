"""OpenCode through its HTTP server (semantics 6.2, providers.md §2)."""
