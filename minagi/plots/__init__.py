"""Drawing a run from its history: `run` reads the rows, `terminal` draws characters, `png` draws pictures."""
