"""What a table does not say by itself and would mislead by: each kind once, in one plain line."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from dpfl_bench.results.collect.best import baselines, groups
from dpfl_bench.results.collect.columns import overrides
from dpfl_bench.results.collect.edges import Caveat, edges, key_of, name
from dpfl_bench.results.collect.folders import Run, Survey
from dpfl_bench.results.collect.mixed import Clash, origin
from dpfl_bench.results.collect.points import KEYS, Row
from dpfl_bench.results.folder import BROKEN, RunFolder

IDLE = ("eps", "delta", "privacy", "stop_at_eps")  # settings that a run without privacy does not look at


def of_runs(finished: Sequence[Run], survey: Survey, clashes: Sequence[Clash]) -> list[Caveat]:
    """What the runs themselves would mislead by, whatever the table makes of them."""
    said = [Caveat(f"mixed_{clash.part}", clash.says, {"runs": _by_hash(clash)}) for clash in clashes]
    silent = [
        run.name
        for run in finished
        if any(origin(run, part) is None for part in ("targets", "package", "data"))
    ]
    if silent:
        says = (
            f"{len(silent)} of {len(finished)} runs do not tell by which code and on which data they were"
            " computed"
        )
        said.append(
            Caveat(
                "no_origin", f"{says} ({silent[0]}{', ...' if len(silent) > 1 else ''}).", {"runs": silent}
            )
        )
    if survey.twice:
        taken, left = survey.twice[0]
        more = f", and {len(survey.twice) - 1} more" if len(survey.twice) > 1 else ""
        says = (
            f"Run {taken.name} has two folders that tell different results, {left.path} and {taken.path},"
            f" which was taken{more}."
        )
        folders = [
            {"run": run.name, "taken": str(run.path), "left": str(other.path)} for run, other in survey.twice
        ]
        said.append(Caveat("twice", says, {"folders": folders}))
    return said


def _by_hash(clash: Clash) -> dict[str, list[str]]:
    return {digest: [run.name for run in runs] for digest, runs in clash.runs.items()}


def ended(finished: Sequence[Run], bad: Sequence[Row], by: str) -> list[Caveat]:
    """Points that have no error, because a run of theirs ended early or does not tell it."""
    early = [run.name for run in finished if run.result and run.result["status"] != "done"]
    points = [point for point in bad if set(point["run_ids"]) & set(early)]
    said = []
    if early:
        says = (
            f"Diverged: {len(early)} of {len(finished)} runs; the {len(points)} points they belong to have no"
            " error and cannot be best."
        )
        said.append(Caveat("diverged", says, {"runs": early}))
    if len(points) < len(bad):
        silent = [point["run_ids"][0] for point in bad if not set(point["run_ids"]) & set(early)]
        instead = " Without a test set use --by train_loss." if by.startswith("test_") else ""
        says = (
            f"No {by.replace('_', ' ')} in {len(silent)} points"
            f" ({silent[0]}{', ...' if len(silent) > 1 else ''}): they cannot be best.{instead}"
        )
        said.append(Caveat("no_error", says, {"runs": silent}))
    return said


def of_all(why: Sequence[tuple[Row, str]], rows: Sequence[Row]) -> list[Caveat]:
    """Rows without an eps of all n, and why."""
    reasons: dict[str, list[Row]] = {}
    for row, reason in why:
        reasons.setdefault(reason, []).append(row)
    return [
        Caveat("no_eps_of_all", f"No eps of all n for {_names(members, rows)}: {reason}.", _rows(members))
        for reason, members in reasons.items()
    ]


def of_table(
    rows: Sequence[Row], points: Sequence[Row], bad: Sequence[Row], folders: Mapping[str, Path]
) -> list[Caveat]:
    """bad: points without an error, in the groups of the others."""
    grouped, without = groups(points), groups(bad)
    tried = {group: [*members, *without.get(group, [])] for group, members in grouped.items()}
    said = [
        _about(rows, "one_seed", partial(_one_seed, grouped), _SEED),
        _about(rows, "single_point", lambda row: len(tried[key_of(row)]) == 1, _POINT),
        _about(rows, "steps_not_swept", partial(_not_swept, tried), _STEPS),
        edges(rows, tried),
        _no_baseline(rows, folders),
        _other_splits(rows, points),
        _uneven(grouped),
        _nominal(rows),
        _shared(points),
    ]
    return [caveat for caveat in said if caveat]


_SEED = (
    "One seed at points of {rows}: what is best there may be luck, and which are as good is not known (?);"
    " repeats=5 makes five."
)
_POINT = "One point only in {rows}: nothing was swept, so it is no optimum."
_STEPS = (
    'One number of local steps only in {rows}: they were not swept, so "best local steps" is what was given.'
)


def _names(rows: Sequence[Row], all_rows: Sequence[Row]) -> str:
    """How many of the table's rows, and which one, say."""
    if len(rows) == len(all_rows) > 1:
        return f"all {len(rows)} rows"
    count = f"{len(rows)} of {len(all_rows)} rows" if len(all_rows) > 1 else "the row"
    return f"{count} ({name(rows[0])}{', ...' if len(rows) > 1 else ''})"


def _rows(rows: Sequence[Row]) -> dict[str, Any]:
    return {"rows": [{key: row[key] for key in KEYS} for row in rows]}


def _about(rows: Sequence[Row], kind: str, holds: Callable[[Row], bool], says: str) -> Caveat | None:
    about = [row for row in rows if holds(row)]
    return Caveat(kind, says.format(rows=_names(about, rows)), _rows(about)) if about else None


def _one_seed(grouped: Mapping[tuple[Any, ...], Sequence[Row]], row: Row) -> bool:
    return any(point["n_seeds"] == 1 for point in grouped[key_of(row)])


def _not_swept(tried: Mapping[tuple[Any, ...], Sequence[Row]], row: Row) -> bool:
    members = tried[key_of(row)]
    return len(members) > 1 and len({point["local_steps"] for point in members}) == 1


def _no_baseline(rows: Sequence[Row], folders: Mapping[str, Path]) -> Caveat | None:
    alone = [row for row in rows if row["budget"] < math.inf and math.isnan(row["gap"])]
    if not alone:
        return None
    commands = [_without_privacy(row, folders) for row in alone]
    others = len({*commands} - {commands[0], None})
    more = f" (and {others} more, told by --json)" if others else ""
    says = f"No run with eps=inf beside {_names(alone, rows)}, so the gap is not known"
    says += f"; to add it: {commands[0]}{more}" if commands[0] else "; run the same with eps=inf to add it"
    return Caveat(
        "no_baseline",
        says,
        {"rows": [{**r, "command": c} for r, c in zip(_rows(alone)["rows"], commands, strict=True)]},
    )


def _without_privacy(row: Row, folders: Mapping[str, Path]) -> str | None:
    """The command of the row's best point without privacy, at every number of local steps that was
    tried.
    """
    given: dict[str, dict[str, None]] = {}
    for run in row["run_ids"]:
        for word in overrides(folders[run]):
            key, _, value = word.replace("\\{", "{").replace("\\}", "}").partition("=")
            given.setdefault(key, {})[value] = None
    words = {
        key: list(values) for key, values in given.items() if key.lstrip("+~").partition(".")[0] not in IDLE
    }
    if not words:
        return None
    if "local_steps" in words:
        words["local_steps"] = [str(steps) for steps in row["tried"]]
    sweep = ["-m"] if any(len(values) > 1 for values in words.values()) else []
    said = (f"{key}={','.join(values)}" if any(values) else key for key, values in words.items())
    return shlex.join(
        ["dpfl-bench", "run", *sweep, *_own_configs(folders[row["run_ids"][0]]), *said, "eps=inf"]
    )


def _own_configs(folder: Path) -> list[str]:
    """-cd DIR and -cn NAME of the command that computed a run."""
    try:
        words = shlex.split(str((RunFolder(folder).read("env.json") or {})["command"]))
    except (OSError, *BROKEN):
        return []
    flags = ("-cd", "--config-dir", "-cn", "--config-name")
    return [part for flag, value in pairwise(words) if flag in flags for part in (flag, value)]


def _other_splits(rows: Sequence[Row], points: Sequence[Row]) -> Caveat | None:
    """A split that is hard for all points is in one side of such a gap alone."""
    splits = {tuple(point["run_ids"]): set(point["split_means"]) for point in points}
    free = {key_of(row)[:4]: row for row in rows if row["budget"] == math.inf}
    apart = []
    for row in rows:
        base = next((free[key] for key in baselines(key_of(row)) if key in free), row)
        if splits[tuple(base["run_ids"])] != splits[tuple(row["run_ids"])]:
            apart.append(row)
    says = (
        f"The gap of {_names(apart, rows)} is to runs on other splits of the data: part of it may be the"
        " splits' own."
        if apart
        else ""
    )
    return Caveat("gap_across_splits", says, _rows(apart)) if apart else None


def _nominal(rows: Sequence[Row]) -> Caveat | None:
    stated = [row for row in rows if row.get("nominal_eps") is not None]
    if not stated:
        return None
    how = ", ".join(dict.fromkeys(str(row["nominal_how"]) for row in stated))
    says = f"The nominal eps of {_names(stated, rows)} is a paper's own ({how}) and no guarantee"
    says += "; what holds for the best point is under eps"
    wide = [row for row in stated if row["valid_eps_range"] and _wide(*row["valid_eps_range"])]
    if wide:
        low, high = wide[0]["valid_eps_range"]
        says += f", and between {low:.4g} and {high:.4g} over the points of {_names(wide, rows)}"
    return Caveat("nominal_eps", f"{says}.", _rows(stated))


def _wide(low: float, high: float) -> bool:
    return high > 1.01 * low


def _uneven(grouped: Mapping[tuple[Any, ...], Sequence[Row]]) -> Caveat | None:
    """Points that are compared have more seeds than others."""
    for members in grouped.values():
        counts = {point["n_seeds"] for point in members}
        if len(counts) > 1:
            named = f"{name(members[0])}: {min(counts)} to {max(counts)}"
            says = f"Some points have more seeds than others ({named}): one with few may be the best by luck."
            return Caveat("uneven_seeds", says, _rows(members[:1]))
    return None


def _shared(points: Iterable[Row]) -> Caveat | None:
    """Several splits of the data saw the same noise: a seed's luck is then that of all splits."""
    for point in points:
        if point["budget"] < math.inf and point["n_draws"] < point["n_seeds"]:
            says = (
                f"Splits of the data share seeds, and so noise ({name(point)}: {point['n_seeds']} repeats,"
                f' {point["n_draws"]} draws): their luck is in no ± and in no "as good".'
                " 'seed=range(0,100,10)' 'dataset.seed=${seed}' gives each split its own."
            )
            return Caveat("shared_seeds", says, _rows([point]))
    return None
