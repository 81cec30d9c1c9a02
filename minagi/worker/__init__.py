"""The trainer as a process: the loop that drives it, and its end of the wire (`minagi.protocol`)."""
