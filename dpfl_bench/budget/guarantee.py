"""The guarantee of a run, as one record: made once, written by `plan`, result.json and
privacy.json, read back by the last line of `run`, the picture and `collect`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import remembers
from dpfl_bench.privacy.released.composition import Companion, Composition, View

if TYPE_CHECKING:
    from dpfl_bench.budget.budget import Budget  # with numpy; who only reads a record needs none

STOPPED = (
    "that the run stopped: every update of a round was blanked, for none was finite, and that follows from"
    " the data"
)


@dataclass(frozen=True)
class Accounted:
    """What the accountant was asked, so that `collect` can ask it about several runs together.

    noise_multiplier: standard deviation / sensitivity; PrivUnit: 1 / the pure eps of one message.
    repeats: seeds that were played. as_one_of: what the bounded observer sees of one of them, as
    far as it was played. fresh: the same of a seed that is played to the end, with cohorts yet to
    be drawn; empty where nothing bounds that. The last three are None where a file leaves them out.
    """

    noise_multiplier: float
    repeats: int | None
    as_one_of: View | None
    fresh: View | None

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def read(node: Mapping[str, Any]) -> Accounted:
        """Of privacy.json's `accounted`. Raises KeyError, TypeError or ValueError where it is
        broken.
        """
        return Accounted(
            noise_multiplier=float(node["noise_multiplier"]),
            repeats=node.get("repeats"),
            as_one_of=_view(node.get("as_one_of")),
            fresh=_view(node.get("fresh")),
        )


def _view(nodes: Sequence[Mapping[str, Any]] | None) -> View | None:
    return None if nodes is None else tuple(map(_composition, nodes))


def _composition(node: Mapping[str, Any]) -> Composition:
    companions = tuple(Companion(**each) for each in node["companions"])
    rounds = tuple((k, count) for k, count in node["rounds"])
    return Composition(**{**node, "companions": companions, "rounds": rounds})


@dataclass(frozen=True)
class Guarantee:
    """What a run guarantees to one unit, towards whom, and what that leaves out.

    A field is None where it does not apply, and where the file that it was read from leaves it out.
    """

    eps: float  # of one seed as far as it was played, towards `observer`; inf without privacy
    delta: float
    unit: str | None  # client | record: what two neighbouring federations differ in
    trust: str | None  # local | secagg | central
    neighbours: str | None = None  # replace_one | add_remove_one
    observer: str | None = None  # the one whose view eps bounds
    eps_target: float | None = None  # the setting `eps`, which the noise was solved for
    # the eps that a paper states for this noise: privacy.nominal, its formula's target, or what its
    # own accountant says. No guarantee
    nominal_eps: float | None = None
    nominal_how: str | None = None  # how the paper comes to it
    valid_eps: float | None = None  # towards `observer` by valid accountants; inf: none bounds it
    eps_all_repeats: float | None = None  # of the models of all seeds together
    calibration: str | None = None  # exact | formula | fixed
    mechanism: str | None = None  # gaussian | privunit
    accountant: str | None = None  # the one that eps is by
    noise_multiplier: float | None = None  # standard deviation / sensitivity; None for PrivUnit
    noise_std: float | None = None  # standard deviation; None for PrivUnit, and where C changes
    views: Mapping[str, float] | None = None  # observer -> eps by the tightest valid accountant
    accountants: Mapping[str, float] | None = None  # accountant -> eps towards `observer`
    observers: Mapping[str, Mapping[str, float]] | None = None  # observer -> accountant -> eps
    memory: str | None = None  # own_message | own_update: what clients remember; None if nothing
    leaks: tuple[str, ...] = ()  # private data that go into training outside every accountant
    fully_accounted: bool | None = None  # whether there are no leaks; None without privacy
    accounted: Accounted | None = None

    @staticmethod
    def of(
        budget: Budget, planned: Budget | None = None, *, blanked: bool = False, every: bool = False
    ) -> Guarantee:
        """The guarantee of a budget.

        budget: of the rounds that were played. planned: of the run if it goes to the end (default:
        it does). blanked: whether it stopped because every update of a round was blanked, which
        tells of the data. every: ask also the accountants that are asked by name alone; they take
        longer.
        """
        settings, privacy, noise = budget.settings, budget.settings.privacy, budget.noise
        nominal, how = _nominal(budget)
        leaks = [*([STOPPED] if blanked and settings.private else []), *settings.leaks]
        return Guarantee(
            eps=budget.eps,
            delta=settings.delta,
            unit=privacy.unit,
            trust=privacy.trust,
            neighbours=privacy.neighbours,
            observer=budget.observer,
            eps_target=settings.eps,
            nominal_eps=nominal,
            nominal_how=how if nominal is not None else None,
            valid_eps=_valid(budget),
            eps_all_repeats=budget.eps_all_repeats,
            calibration=privacy.calibration,
            mechanism=privacy.mechanism,
            accountant=budget.accountant,
            noise_multiplier=None if noise.privunit else noise.multiplier,
            noise_std=noise.std,
            views=budget.views(),
            accountants=budget.accountants(),
            observers={observer: budget.accountants(observer, every=every) for observer in budget.observers},
            memory=privacy.remembered if _remembered(settings) else None,
            leaks=tuple(leaks),
            fully_accounted=not leaks if settings.private else None,
            accounted=Accounted(
                noise.multiplier, len(budget.schedules), budget.seen, (planned or budget).fresh
            ),
        )

    @staticmethod
    def read(file: Mapping[str, Any]) -> Guarantee:
        """The guarantee that result.json or privacy.json tells. Raises KeyError, TypeError or
        ValueError where the file is broken.
        """
        names = {f.name for f in fields(Guarantee)} - {"leaks", "accounted"}
        node = file.get("accounted")
        accounted = None if node is None else Accounted.read(node)
        known: dict[str, Any] = {name: file.get(name) for name in names}
        return Guarantee(**known, accounted=accounted)

    @property
    def private(self) -> bool:
        return self.eps_target != math.inf if self.eps_target is not None else self.eps != math.inf

    @property
    def holds(self) -> bool:
        """Whether eps is a guarantee: nothing leaks past it, and a valid accountant says it."""
        return bool(self.fully_accounted) and self.accountant != "paper"

    @property
    def said(self) -> str:
        """eps for a person. A nominal eps never stands alone."""
        if self.nominal_eps is None or self.valid_eps is None:
            return f"eps {self.eps:.4g}"
        valid = f"valid {self.valid_eps:.4g}" if self.valid_eps < math.inf else "no valid eps"
        return f"eps nominal {self.nominal_eps:.4g}, {valid}"

    def plan(self) -> dict[str, Any]:
        """The keys of `plan --json`."""
        names = ("noise_multiplier", "noise_std", *_SHARED, *_NOMINAL, "accountant", "views", "accountants")
        return {**self._named(*names, "fully_accounted"), "not_accounted": list(self.leaks)}

    def result(self) -> dict[str, Any]:
        """The keys of result.json; what only privacy has is null without."""
        keys = self._named(*_SHARED, "calibration", "accountant", "noise_multiplier", "noise_std")
        keys |= self._named("mechanism", "fully_accounted", *_NOMINAL)
        return keys if self.private else {**keys, **dict.fromkeys(_OF_PRIVACY)}

    def privacy(self) -> dict[str, Any]:
        """The keys of privacy.json of a run with privacy."""
        assert self.accounted is not None
        of_settings = ("unit", "neighbours", "trust", "observer", "mechanism", "calibration", *_NOMINAL)
        of_eps = ("eps", "eps_all_repeats", "delta", "accountant", "accountants", "views", "fully_accounted")
        return {"private": True, **self._named(*of_settings, *of_eps), "accounted": self.accounted.json()}

    def _named(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}


def _nominal(budget: Budget) -> tuple[float | None, str]:
    """What a paper states for the noise of a run, and how it comes to it."""
    settings, privacy = budget.settings, budget.settings.privacy
    if not settings.private:
        return None, ""
    if privacy.accountant == "paper":
        return privacy.nominal or budget.eps, privacy.nominal_how or "the paper's own accountant"
    if privacy.calibration == "formula":
        return privacy.nominal or settings.eps, privacy.nominal_how or f"formula with v = {privacy.v:g}"
    return privacy.nominal, privacy.nominal_how or "as the paper states it"


def _valid(budget: Budget) -> float | None:
    """The eps that holds for the rounds of the budget, as far as no leak goes past it."""
    if not budget.settings.private:
        return None
    return budget.eps if budget.settings.privacy.accountant != "paper" else budget.views()[budget.observer]


def _remembered(settings: Settings) -> bool:
    """At record level what clients remember only processes what was released."""
    return settings.private and settings.privacy.unit == "client" and remembers(settings.algo)


_SHARED = ("eps_target", "eps", "eps_all_repeats", "delta", "unit", "trust", "observer", "neighbours")
_NOMINAL = ("nominal_eps", "nominal_how", "valid_eps")
_OF_PRIVACY = ("calibration", "accountant", "mechanism", "fully_accounted")
