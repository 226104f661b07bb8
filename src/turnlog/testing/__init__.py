"""What turnlog ships for tests: a model stub, a scripted OpenCode, hermetic homes."""
