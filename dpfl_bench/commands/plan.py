"""`dpfl-bench plan`: what a run would spend, as text or JSON. `experiment/plan.py` computes it."""

from __future__ import annotations

import math
from typing import Any

from dpfl_bench.commands import arguments

EXAMPLES = (
    "plan algo=dp_scaffnew eps=2",
    "plan algo=dp_fedavg privacy=central sampled_clients=9 --views",
    "plan dataset=femnist model=cnn records=200 --json",
)


def command(words: list[str]) -> int:
    does = "Without training or data: the noise, eps in every view, the rounds that eps allows, theory."
    parser = arguments.parser("plan", does, EXAMPLES, "docs/privacy.md (what every number means)")
    arguments.add_settings(parser)
    arguments.add_json(parser)
    parser.add_argument(
        "--views", action="store_true", help="every observer by every accountant, and eps over the rounds"
    )
    flags = parser.parse_intermixed_args(words)
    from dpfl_bench.budget.notes import notes
    from dpfl_bench.config import compose
    from dpfl_bench.config.validate import settings
    from dpfl_bench.experiment.plan import plan

    composed = compose.composed(flags.overrides, flags.config_dir, flags.config_name)
    run = settings(composed)
    planned = plan(run, detailed=flags.json or flags.views, every=flags.views)
    for note in notes(run):
        arguments.complain(note)
    arguments.answer(planned, flags.json, text)
    return 0


def text(planned: dict[str, Any]) -> str:
    """The plan for a person."""
    lines = [
        f"{planned['algo']} on {planned['dataset']}: {planned['rounds']} rounds of {planned['local_steps']}"
        " local steps"
    ]
    if planned["lr"] is None:
        lines[0] += (
            "\n  lr         1/L of the worst client, which needs the data (theory.measured=true loads them)"
        )
    if planned["eps"] == math.inf:
        return lines[0] + ", no privacy\n"
    lines += [
        f"  noise      {_noise(planned)}",
        *_nominal(planned),
        f"  spends     eps {planned['eps']:.6g} at delta {planned['delta']:g} towards the"
        f" {planned['observer']} ({planned['accountant']}); the target is {planned['eps_target']:g}"
        + _together(planned),
        f"  releases   {planned['releases']} rounds ({planned['releases_of_worst_client']} releases of the"
        f" worst {planned['unit']})"
        + (
            ""
            if planned["max_rounds"] is None
            else f"; eps {planned['eps_target']:g} allows {planned['max_rounds']} rounds at this noise"
        ),
        *(
            f"             with each: {c['name']}, noise multiplier {c['noise_multiplier']:.6g}"
            for c in planned["further_releases"]
        ),
        "  views      " + ", ".join(f"{name}: {eps:.6g}" for name, eps in planned["views"].items()),
        "  accountants " + ", ".join(f"{name}: {eps:.6g}" for name, eps in planned["accountants"].items()),
        *(f"  NOT FULLY ACCOUNTED: {leak}" for leak in planned["not_accounted"]),
        *([_UNKNOWN] if not planned["holders_known"] and planned["unit"] == "record" else []),
    ]
    if planned["accountant"] == "paper":
        lines.append("  accountant=paper is dpscaffold's own and no guarantee; the views are by valid ones")
    lines += _table(planned)
    if planned["implied"] is not None:
        lines.append(f"  implied    v {planned['implied']['v']:.6g}, q {planned['implied']['q']:.6g}")
    return "\n".join(lines + _theory_lines(planned["theory"])) + "\n"


def _nominal(planned: dict[str, Any]) -> list[str]:
    if planned["nominal_eps"] is None:
        return []
    return [
        f"  nominal    eps {planned['nominal_eps']:.6g} ({planned['nominal_how']}), which is no guarantee;"
        f" valid towards the {planned['observer']}: {planned['valid_eps']:.6g}"
    ]


def _together(planned: dict[str, Any]) -> str:
    if planned["eps_all_repeats"] == planned["eps"]:
        return ""
    return f"; the models of all repeats together spend {planned['eps_all_repeats']:.6g}"


_UNKNOWN = (
    "  overlapping: not known before the data are dealt. These numbers hold if no record sits in two clients"
    " (deals: disjoint in the\n             partition's YAML file says so, and a run checks it). Else a run"
    " counts all holders of a record, and spends more"
)


def _noise(planned: dict[str, Any]) -> str:
    if planned["privunit"] is not None:
        unit = planned["privunit"]
        return (
            f"PrivUnit, eps0 {unit['eps0']:.6g}, eps1 {unit['eps1']:.6g}, eps2 {unit['eps2']:.6g}: one"
            f" message is {unit['release_eps']:.6g}-DP (C {planned['clip']}, local)"
        )
    std = "following C" if planned["noise_std"] is None else f"{planned['noise_std']:.6g}"
    return (
        f"multiplier {planned['noise_multiplier']:.6g}, standard deviation {std} (C {planned['clip']},"
        f" sensitivity {planned['sensitivity']}, {planned['unit']}, {planned['trust']},"
        f" {planned['neighbours']})"
    )


def _table(planned: dict[str, Any]) -> list[str]:
    """--views: every observer by every accountant, and eps over the rounds."""
    if planned["observers"] is None:
        return []
    names = list(dict.fromkeys(name for by in planned["observers"].values() for name in by))
    lines = ["", "  observer    " + "".join(f"{name:>12}" for name in names)]
    for observer, by in planned["observers"].items():
        cells = "".join(f"{by[name]:>12.6g}" if name in by else f"{'-':>12}" for name in names)
        lines.append(
            f"  {observer:<12}{cells}" if by else f"  {observer:<12} trusted, or without a valid accountant"
        )
    lines += ["", "  rounds          eps"]
    return [*lines, *(f"  {moment['rounds']:<10} {moment['eps']:>8.5g}" for moment in planned["spent"]), ""]


def _theory_lines(expected: dict[str, Any] | None) -> list[str]:
    if expected is None:
        return []
    lines = [
        f"  theory     mu {expected['mu']:g}, L {expected['L']:.6g}: p* {expected['p_star']:.6g}, so"
        f" {expected['local_steps_star']:.3g} local steps; v {expected['v']:.6g} for one client's noise"
    ]
    if expected["T_star"] is None:
        return [*lines, "             T* needs theory.psi0"]
    lines.append(f"             covers {expected['covers']}")
    none = " (the budget buys nothing)" if expected["T_star"] == 0 else ""
    lines.append(
        f"             T* {expected['T_star']:.6g} local steps{none}, {expected['rounds_star']:.4g} rounds;"
        f" psi_0 {expected['psi0']:.4g} ({expected['psi0_from']})"
    )
    return [
        *lines,
        "             T          B(T)",
        *(f"             {row['T']:<10} {row['bound']:.6g}" for row in expected["bound"]),
    ]
