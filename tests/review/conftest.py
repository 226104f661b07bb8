"""The desk of the drive tests: one ledger, one scripted OpenCode."""

from __future__ import annotations

from tests.drive.conftest import anyio_backend, desk

__all__ = ["anyio_backend", "desk"]
