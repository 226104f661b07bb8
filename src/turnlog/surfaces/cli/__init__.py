"""The command line (contract §2): one file per noun, each command loaded only when it is asked for."""
