"""`python -m minagi.plots HISTORY MODEL FOLDER LAST`: the pictures of a run, drawn while it runs."""

from __future__ import annotations

import sys
from pathlib import Path

from minagi.errors import MinagiError
from minagi.hardware import lower_priority
from minagi.plots.png import draw
from minagi.plots.run import runs_of
from minagi.training.history import History


def main(history: str, model: str, folder: str, last: str) -> int:
    """Draw, if there is something to draw; returns the exit status."""
    lower_priority()
    rows = History(Path(history)).rows()
    run = runs_of(row for row in rows if row.get("model") == model).get(model)
    try:
        if run is not None and run.chars:
            draw(run, Path(folder), float(last))
    except MinagiError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
