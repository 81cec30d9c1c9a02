"""`minagi completion`: what a shell has to read to complete minagi's commands and flags."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from minagi.commands import COMMANDS
from minagi.commands.output import put
from minagi.completion import SHELLS, script, tree
from minagi.errors import EXIT_OK
from minagi.options import Parser

EXAMPLE = """examples:
  minagi completion bash > ~/.local/share/bash-completion/completions/minagi
  minagi completion zsh > ~/.zfunc/_minagi        (with ~/.zfunc in fpath)
  minagi completion tcsh > ~/.minagi.tcsh         (and: source ~/.minagi.tcsh)
  minagi-tui --completion bash                    the same for the app
"""


def parser() -> Parser:
    made = Parser(
        prog="minagi completion",
        usage="%(prog)s bash|zsh|tcsh",
        description="Print what a shell has to read to complete minagi's commands and flags.",
        epilog=EXAMPLE,
    )
    made.add_argument("shell", choices=SHELLS, help="the shell it is for")
    return made


def main(argv: Sequence[str]) -> int:
    """Print the script."""
    arguments = parser().parse(argv)
    found = {name: (words, _parser_of(name)) for name, words in COMMANDS.items()}
    put(script(tree("minagi", found), arguments.shell))
    return EXIT_OK


def _parser_of(name: str) -> Parser:
    """The parser of a command; of `bench`, one over those of the benchmarks."""
    module = importlib.import_module(f"minagi.commands.{name}")
    if not hasattr(module, "parsers"):
        made: Parser = module.parser()
        return made
    return tree(f"minagi {name}", {what: ("", each) for what, each in module.parsers().items()})
