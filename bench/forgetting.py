"""What new text costs an old subject: ways of reading × kinds of text × seeds, as one table.

    python bench/forgetting.py --old tinyshakespeare.txt --work DIR

makes three kinds of new text and one base model a seed under DIR, reads each text with each base in each
way (`minagi forget` does one of these runs), and prints the table of docs/forgetting.md. Every run is a line
of DIR/results.jsonl; what is there already is not run again. About 10 minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data import topics
from typing import Any

from minagi.config import LoadedSettings, load_settings
from minagi.experiments.additions import lines
from minagi.experiments.forgetting import ForgetRequest, report
from minagi.hardware import prepare_environment
from minagi.training.request import SessionRequest

# name -> (trunk_lr_mult, share of old text, plain)
WAYS: dict[str, tuple[float | None, float, bool]] = {
    "plain fine-tuning": (None, 0.0, True),
    "trunk 1.0×": (1.0, 0.0, False),
    "trunk 0.1×": (0.1, 0.0, False),
    "trunk 1.0×, interleaved": (1.0, 0.5, False),
}
CODE_BYTES = 1_000_000
ADDITIONS = 60_000
EVAL_CHARS = 16_384


def code() -> Iterator[bytes]:
    """Python's standard library: its top-level modules by name, whole, until there is a million bytes."""
    total = 0
    for module in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if total >= CODE_BYTES:
            return
        data = module.read_bytes()
        total += len(data)
        yield data


def prose() -> Iterator[bytes]:
    """Python's language reference in plain English, as `help("topics")` shows it."""
    for _, text in sorted(topics.topics.items()):
        yield text.encode() + b"\n"


def texts(folder: Path) -> dict[str, Path]:
    """The three kinds of new text, made where they are not there yet."""
    kinds = {"code": code(), "additions": lines(ADDITIONS, 0), "prose": prose()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, pieces in kinds.items():
        if not (folder / f"{name}.txt").exists():
            (folder / f"{name}.txt").write_bytes(b"".join(pieces))
    return {name: folder / f"{name}.txt" for name in kinds}


def settings(work: Path, **values: object) -> LoadedSettings:
    """The cpu profile, whatever lies in the current folder."""
    given = {
        "data.history": work / "history.jsonl", "data.held_out": work / "none",
        "training.average_chars": 0,  # scores are of the weights that did the reading, not of their mean
        **values,
    }  # fmt: skip
    return load_settings(given, profile="cpu", environ={}, cwd=work)


def base(work: Path, old: Path, seed: int, chars: int) -> Path:
    """A model that has read `chars` characters of the old subject, made where it is not there yet."""
    from minagi.training.session import open_session

    weights = work / f"base-{seed}"
    if not (weights / "core.npz").exists():
        request = SessionRequest((old,), weights, settings(work), dry_run=False, seed=seed)
        session = open_session(request)
        while session.chars < chars:
            for _ in session.step():
                pass
        for _ in session.checkpoint():
            pass
        session.close()
    return weights


def run(work: Path, weights: Path, old: Path, new: Path, way: str, seed: int, chars: int) -> dict[str, Any]:
    """One run of the matrix, as a line of the results."""
    from minagi.experiments.study import Study

    trunk, interleave, plain = WAYS[way]
    values = {} if trunk is None else {"training.trunk_lr_mult": trunk}
    loaded = settings(work, **{"data.eval_chars": EVAL_CHARS, **values})
    study = Study(ForgetRequest(new, weights, loaded, (old,), chars, (), interleave, plain, seed=seed))
    try:
        for _ in study.run():
            pass
        return {**study.describe(), "points": report(study.points, study.new.name)}
    finally:
        study.close()


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    """Markdown: means over seeds ± their standard deviation; the ratio is that of the means, and left out
    where no more was lost than the seeds differ by."""
    yield "| new text | way | before: new / known | gained | lost | gained for each lost | retained |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["kind"], result["way"]), []).append(result)
    for (kind, way), found in groups.items():
        first, last = [r["points"][0] for r in found], [r["points"][-1] for r in found]
        gained, lost = [p["gained"] for p in last], [p["lost"] for p in last]
        surely = statistics.fmean(lost) > (statistics.stdev(lost) if len(lost) > 1 else 0)
        ratio = f"{sum(gained) / sum(lost):.1f}" if surely else "–"
        before = " / ".join(
            f"{statistics.fmean(sum(p[side].values()) / len(p[side]) for p in first):.2f}"
            for side in ("new", "known")
        )
        retained = _spread([100 * p["retained"] for p in last], "{:.1f}")
        yield (
            f"| {kind} | {way} | {before} | {_spread(gained)} | {_spread(lost)} | {ratio} | {retained} % |"
        )


def _spread(values: list[float], form: str = "{:.3f}") -> str:
    mean = form.format(statistics.fmean(values))
    return mean if len(values) < 2 else f"{mean} ± {form.format(statistics.stdev(values))}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, required=True, help="the text every base model learns first")
    parser.add_argument("--work", type=Path, required=True, help="folder for texts, models and results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--base-chars", type=int, default=300_000)
    parser.add_argument("--chars", type=int, default=30_000)
    arguments = parser.parse_args()
    work = arguments.work.absolute()
    kinds = texts(work / "texts")
    prepare_environment(1, settings(work).settings.hardware)
    file = work / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(result["kind"], result["way"], result["seed"]) for result in results}
    for seed in arguments.seeds:
        weights = base(work, arguments.old.absolute(), seed, arguments.base_chars)
        for kind, new in kinds.items():
            for way in WAYS:
                if (kind, way, seed) in done:
                    continue
                found = run(work, weights, arguments.old.absolute(), new, way, seed, arguments.chars)
                results.append({"kind": kind, "way": way, **found})
                with file.open("a") as kept:
                    kept.write(json.dumps(results[-1]) + "\n")
    results.sort(key=lambda r: (list(kinds).index(r["kind"]), list(WAYS).index(r["way"])))
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
