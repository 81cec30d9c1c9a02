"""Text: its alphabet, the files it is read from, what is held out, and the order of reading."""
