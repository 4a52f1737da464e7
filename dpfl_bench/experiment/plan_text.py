"""A plan, and a table of several, for a person."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH = 100


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
        *_noise_on(planned["noise_on"]),
        *_nominal(planned),
        f"  spends     eps {planned['eps']:.6g} at delta {planned['delta']:g} towards the"
        f" {planned['observer']} ({planned['accountant']}); the target is {planned['eps_target']:g}"
        + _together(planned),
        *_means(planned["means"]),
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
        "  views      eps towards each observer: "
        + ", ".join(f"{name} {eps:.6g}" for name, eps in planned["views"].items()),
        "  accountants " + ", ".join(f"{name}: {eps:.6g}" for name, eps in planned["accountants"].items()),
        *(f"  NOT FULLY ACCOUNTED: {leak}" for leak in planned["not_accounted"]),
        *([_UNKNOWN] if not planned["holders_known"] and planned["unit"] == "record" else []),
    ]
    if planned["accountant"] == "paper":
        lines.append("  accountant=paper is dpscaffold's own and no guarantee; the views are by valid ones")
    lines += _table(planned)
    if planned["implied"] is not None:
        lines.append(
            f"  implied    v {planned['implied']['v']:.6g} and q {planned['implied']['q']:.6g}: the formulas"
            " of balancing and normalized give this noise"
        )
    if planned["theory_is_none"] is not None:
        lines.append(f"  theory     none: {planned['theory_is_none']}")
    return "\n".join(lines + _theory_lines(planned["theory"])) + "\n"


def table(plans: Sequence[Mapping[str, Any]]) -> str:
    """A line for each of several plans, under the settings in which they differ."""
    named = [dict(word.split("=", 1) for word in plan["overrides"]) for plan in plans]
    keys = [key for key in named[0] if len({each.get(key) for each in named}) > 1]
    head = [*keys, "noise multiplier", "on the sum", "a client's", "on the mean", "spends eps", "rounds"]
    rows = [
        [*(each.get(key, "") for key in keys), *_cells(plan)] for each, plan in zip(named, plans, strict=True)
    ]
    head += [f"power at {alarms} %" for alarms in (5, 1)] + ["T*"]
    shown = [k for k in range(len(head)) if k < len(keys) or any(row[k] != "-" for row in rows)]
    lines = [[line[k] for k in shown] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    told = "\n".join("  ".join(f"{c:>{w}}" for c, w in zip(line, widths, strict=True)) for line in lines)
    return f"{told}\n\n{_EXPLAINED}\n" if len(shown) > len(keys) + 2 else f"{told}\n"


_EXPLAINED = (
    "Noise: standard deviations on a cohort's sum of updates, on one client's own share or message, and on\n"
    "the mean. Power: how often the best test notices the neighbour, at 5 % or 1 % false alarms."
)


def _cells(plan: Mapping[str, Any]) -> list[str]:
    if plan["eps"] == math.inf:
        return ["-"] * 4 + ["inf", str(plan["rounds"]), "-", "-", "-"]
    on, means, theory = plan["noise_on"] or {}, plan["means"], plan["theory"] or {}
    power = list(means["power"].values()) if means else [None, None]
    multiplier = None if plan["privunit"] else plan["noise_multiplier"]
    numbers = [multiplier, on.get("sum", on.get("lot_sum")), on.get("client")]
    numbers += [on.get("mean", on.get("lot_mean")), plan["eps"]]
    cells = ["-" if each is None else f"{each:.4g}" for each in numbers]
    cells += [str(plan["rounds"]), *("-" if each is None else f"{100 * each:.3g} %" for each in power)]
    steps = theory.get("T_star")
    return [*cells, "-" if steps is None else f"{steps:.4g}"]


def _noise_on(on: Mapping[str, float] | None) -> list[str]:
    """The same noise on the sum, on a client's own message, on the mean."""
    words = {
        "sum": "on the sum of a cohort",
        "client": "a client's own",
        "mean": "on their mean",
        "lot_sum": "on the sum of a lot's gradients",
        "lot_mean": "on their mean",
    }
    said = ", ".join(f"{words[key]} {std:.3g}" for key, std in (on or {}).items())
    return [f"             standard deviation {said}"] if said else []


def _means(means: Mapping[str, Any] | None) -> list[str]:
    if means is None:
        return []
    first, *others = textwrap.wrap(means["says"], WIDTH - 13)
    return [f"  means      {first}", *(f"             {line}" for line in others)]


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
        f" {expected['local_steps_star']:.3g} local steps; v {expected['v']:.6g} of one client's noise"
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
