"""What privacy/ refuses, in one line each: what was expected, what came, what to do.

A class or a function finds out that something is wrong, and raises what a function here returns.
Settings that can be refused without schedules are refused earlier, in `config/refusals.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol


class PrivacyError(ValueError):
    """A guarantee that was asked for does not hold: the message says what does."""


class OutOfReach(PrivacyError):
    """An accountant cannot tell at these numbers; more noise or another accountant may help."""


class _Released(Protocol):
    """What a composition says of its kind."""

    @property
    def mechanism(self) -> str: ...
    @property
    def rounds(self) -> tuple[tuple[int, int], ...]: ...


# ---- what is released (released/) ----


def check_known(**named: tuple[object, tuple[str, ...]]) -> None:
    """Raise for the first value that is not among those known; key=(value, known)."""
    for key, (value, known) in named.items():
        if value not in known:
            raise PrivacyError(f"{key}={value}: expected one of {', '.join(known)}")


def companion_without_value(name: str, value: float) -> PrivacyError:
    return PrivacyError(
        f"companion {name}: value={value}: expected a number > 0 (leave it out if it releases nothing)"
    )


def count_out_of_range(key: str, value: float, expected: str) -> PrivacyError:
    return PrivacyError(f"{key}={value}: expected {expected}")


def not_everybody(clients: int, rounds: int, cohort_size: int, worst: int) -> PrivacyError:
    return PrivacyError(
        f"sampling=full: expected cohort_size=clients={clients} and worst=rounds={rounds}, got"
        f" cohort_size={cohort_size}, worst={worst} (use client_sampling=fixed)"
    )


def pure_without_local_trust(trust: str) -> PrivacyError:
    return PrivacyError(
        f"mechanism=pure trust={trust}: expected privacy=local (or use privacy.mechanism=gaussian)"
    )


def pure_with_companions(names: Iterable[str]) -> PrivacyError:
    return PrivacyError(
        f"mechanism=pure: expected no Gaussian companions, got {', '.join(names)} (count all that a message"
        " holds in eps_0)"
    )


def colluding_without_shares(colluding: int, trust: str) -> PrivacyError:
    return PrivacyError(
        f"privacy.colluding={colluding}: expected 0 under privacy.trust={trust}, where noise is not shared"
        " (use privacy=secagg)"
    )


def too_many_colluding(colluding: int, most: int) -> PrivacyError:
    return PrivacyError(
        f"privacy.colluding={colluding}: expected 0 to {most}, one less than the smallest cohort, or no"
        " honest noise is left in it; lower it, take larger cohorts, or use privacy=local"
    )


def lots_not_covered(lots: str, neighbours: str) -> PrivacyError:
    other = "add_remove_one or batch_size=N" if lots == "poisson" else "replace_one or sample_rate=R"
    return PrivacyError(
        f"lots={lots} neighbours={neighbours}: no valid accountant (use privacy.neighbours={other})"
    )


def record_counts_out_of_range(worst: int, cohort_size: int, holders: int, most: int) -> PrivacyError:
    return PrivacyError(
        f"worst={worst}, cohort_size={cohort_size}, holders={holders}: expected 0 to {most} gradients, and"
        " at least 1 client"
    )


# ---- who sees it (released/views.py) ----


def sampling_not_covered(sampling: str, neighbours: str) -> PrivacyError:
    nearest, other = ("replace_one", "poisson") if sampling == "fixed" else ("add_remove_one", "fixed")
    return PrivacyError(
        f"privacy.trust=central client_sampling={sampling} privacy.neighbours={neighbours}: no valid"
        f" accountant (use privacy.neighbours={nearest} or client_sampling={other})"
    )


def no_honest_noise(colluding: int) -> PrivacyError:
    return PrivacyError(
        f"privacy.colluding={colluding}: a poisson cohort may hold no honest noise beside theirs, so there"
        " is no bound before the cohorts are drawn (use client_sampling=fixed or privacy.observer=server)"
    )


def trusted_observer(observer: str) -> PrivacyError:
    return PrivacyError(
        f"privacy.observer={observer}: trusted under privacy.trust=central, no noise bounds it (use"
        " privacy.observer=third_party or privacy=secagg)"
    )


# ---- how it is counted (accountants/, accounting.py) ----


def delta_out_of_range(delta: float) -> PrivacyError:
    return PrivacyError(
        f"delta={delta}: expected 0 < delta < 1 (1e-5, or below one over the number of clients)"
    )


def noise_multiplier_out_of_range(noise_multiplier: float) -> PrivacyError:
    return PrivacyError(f"noise_multiplier={noise_multiplier}: expected a number >= 0")


def unknown_accountant(name: str, known: Sequence[str]) -> PrivacyError:
    return PrivacyError(f"accountant={name}: expected one of {', '.join(known)}")


def no_accountant(name: str, file: Path) -> PrivacyError:
    return PrivacyError(
        f"{file}: expected ACCOUNTANT = Accountant({name!r}, refusal, epsilon) of"
        " dpfl_bench.privacy.accountants.accountant; add it (docs/extend.md has an example)"
    )


def own_is_below(name: str, eps: float, tight: str, least: float) -> PrivacyError:
    return PrivacyError(
        f"privacy.accountant={name}: it says eps={eps:.6g} where {tight} says {least:.6g}; expected no less,"
        " for nothing smaller is known to hold; correct your accountant"
    )


def package_missing(name: str, package: str | None) -> PrivacyError:
    return PrivacyError(
        f"privacy.accountant={name}: expected the package {package}, there is none; pip install"
        f" 'dpfl-bench[{package}]'"
    )


def accountant_not_valid(
    name: str, view: Sequence[_Released], reason: str | None, valid: Sequence[str]
) -> PrivacyError:
    kinds = ", ".join("participation" if c.rounds else c.mechanism for c in view)
    because = f": {reason}" if reason else ""
    use = " or ".join(f"privacy.accountant={each}" for each in ("auto", *valid))
    return PrivacyError(f"privacy.accountant={name}: not valid for {kinds}{because} (use {use})")


def out_of_reach(name: str, reason: str) -> OutOfReach:
    return OutOfReach(
        f"privacy.accountant={name}: cannot tell an epsilon, {reason} (use privacy.accountant=auto)"
    )


# ---- the noise for it (calibration.py) ----


def eps_out_of_range(eps: float, *, zero: bool = False) -> PrivacyError:
    """zero: whether eps=0 is allowed."""
    return PrivacyError(f"eps={eps}: expected eps {'>=' if zero else '>'} 0 (use eps=inf for no privacy)")


def no_noise_is_enough(eps: float, delta: float, names: Iterable[str]) -> PrivacyError:
    return PrivacyError(
        f"eps={eps}, delta={delta}: {' or '.join(names)} finds no noise that is enough; raise eps or delta"
    )


def overspent(noise: float, eps: float, spent: float) -> PrivacyError:
    return PrivacyError(
        f"noise_multiplier={noise:.6g}: expected to spend at most eps={eps:g}, it spends {spent:.6g} (report"
        " this)"
    )


def accountants_disagree(
    composition: object, noise: float, tight: tuple[str, float], loose: tuple[str, float]
) -> PrivacyError:
    """tight, loose: (name of the accountant, eps)."""
    return PrivacyError(
        f"{composition}: accountants disagree at noise_multiplier={noise:.6g}, {tight[0]} says"
        f" eps={tight[1]:.6g} and {loose[0]} {loose[1]:.6g} (report this)"
    )


def formula_out_of_range(v: float, clip: float, eps: float, delta: float) -> PrivacyError:
    return PrivacyError(
        f"v={v}, clip={clip}, eps={eps}, delta={delta}: expected v, clip, eps > 0 and 0 < delta < 1"
    )


# ---- the best of several runs (selection.py) ----


def trials_out_of_range(mean: float, distribution: str) -> PrivacyError:
    least = "> 0" if distribution == "poisson" else ">= 1"
    other = "" if distribution == "poisson" else " (or distribution=poisson)"
    return PrivacyError(f"trials={mean:g}: expected a mean {least} of the number of trials{other}")
