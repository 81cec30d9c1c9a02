"""The trainer as a child process, and the messages it speaks."""
