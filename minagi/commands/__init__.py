"""One module a command of `minagi`; each has `main(argv) -> exit status`."""
