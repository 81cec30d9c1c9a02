"""One module a command of `minagi`; each has `parser()` and `main(argv) -> exit status`."""

COMMANDS = {  # in the order --help lists them
    "read": "read text and learn from it",
    "write": "write on after a prompt",
    "eval": "measure how well a model predicts a text",
    "forget": "what reading a new subject would cost the old ones",
    "probe": "whether depth follows difficulty, by additions",
    "pack": "make a corpus of files, for stream",
    "stream": "read packed corpora by a schedule",
    "info": "what a weights directory holds",
    "snapshots": "the kept checkpoints of a model",
    "history": "a run as a table",
    "plot": "a run drawn in the terminal, or as pictures",
    "revert": "make a model what it was at a kept checkpoint",
    "config": "every setting in effect, and where it came from",
    "bench": "what this machine does with minagi, measured",
    "doctor": "what this machine can do, what is missing, and the remedy",
    "completion": "completion of commands and flags for a shell",
}
