"""Completion of commands and flags for shells, made from the parsers there are."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from minagi.config import KEYS, profiles
from minagi.options import Parser

SHELLS = ("bash", "zsh", "tcsh")


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """What a shell has to read to complete the flags of `parser`, which is marked up on the way."""
    import shtab

    files = {"PATH": shtab.FILE, "FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
    for each in _all(parser):
        for action in each._actions:
            key = KEYS.get(action.dest)
            kind = files.get(str(action.metavar))
            if kind is not None:
                action.complete = kind  # type: ignore[attr-defined]
            elif action.dest == "profile":
                action.choices = profiles()
            elif key is not None and key.rule.choices:
                action.choices = list(key.rule.choices)
    return shtab.complete(parser, shell)


class Print(argparse.Action):
    """A flag that prints the script for the shell it names, and ends the program, as --version does."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: str | None = None
    ) -> NoReturn:
        parser._print_message(script(parser, values) + "\n", sys.stdout)
        parser.exit()


def tree(prog: str, commands: Mapping[str, tuple[str, Parser]]) -> Parser:
    """A parser of `prog COMMAND …` from each command's words and parser."""
    made = Parser(prog=prog, description=None)
    chosen = made.add_subparsers(dest="command")
    for name, (words, parser) in commands.items():
        chosen.add_parser(name, help=words, parents=[parser], add_help=False)
    return made


def _all(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parser and those of its commands."""
    found: list[argparse.ArgumentParser] = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found += _all(child)
    return found
