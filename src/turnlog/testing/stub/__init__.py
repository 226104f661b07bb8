"""The parts of the model stub; the entrance is ``turnlog.testing.stub_llm``."""
