"""What a run claims: read from its guarantee's record (privacy.json), and from nothing else.

Unit and neighbouring relation are those of the record. A number that the record leaves out is not
guessed from the settings: the part that needs it says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.privacy.released.composition import Composition, View

FURTHER = {"sum of squared norms": "norms", "number of norms below C": "bits"}
BROKEN = (KeyError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True)
class Claim:
    eps: float
    delta: float
    unit: str
    neighbours: str
    trust: str
    observer: str
    mechanism: str
    multiplier: float  # standard deviation / sensitivity of the main release
    views: View  # what the observer sees: alternatives, of which each bounds the run
    accountant: str
    main: Mapping[str, Any]  # privacy.json's first release
    further: Mapping[str, float] = field(default_factory=dict)  # noise multipliers of further sums
    leaks: tuple[str, ...] = ()

    @staticmethod
    def read(record: Mapping[str, Any]) -> Claim:
        """Raises ConfigError where the record is not one of a private run."""
        if not record.get("private", False):
            raise ConfigError(
                "eps=inf: nothing is claimed, so there is nothing to audit; expected a private run (eps=2)"
            )
        try:
            return _read(record)
        except BROKEN as error:
            raise ConfigError(
                f"privacy.json: expected the record of a run of this version ({type(error).__name__}:"
                f" {error}); run it again"
            ) from None

    @property
    def factor(self) -> float:
        """Sensitivity / C, as declared, also where C changes."""
        if "sensitivity_over_clip" in self.main:
            return float(self.main["sensitivity_over_clip"])
        return float(self.main["sensitivity"]) / float(self.main["clip"])

    @property
    def seen(self) -> Composition:
        return self.views[0]

    @property
    def std_ratio(self) -> float:
        """Standard deviation / C, by the noise multiplier that was accounted."""
        return self.multiplier * self.factor

    @property
    def clip(self) -> float | None:
        """C; None where it is the median of norms."""
        return None if self.median else float(self.main["clip"])

    @property
    def release(self) -> str:
        """The kind of the main release: update, gradient."""
        return str(self.main["kind"])

    @property
    def noise(self) -> dict[str, float]:
        """Release -> declared noise multiplier."""
        return {self.release: self.multiplier, **self.further}

    def weight(self, records: int) -> float:
        """Of a record in the mean of its lot, for a client with so many records: by the record of
        lots, and never by the size that was drawn.
        """
        lots = self.main["lots"]
        return 1 / float(lots["batch_size"]) if "batch_size" in lots else 1 / (lots["sample_rate"] * records)

    @property
    def median(self) -> bool:
        """Whether C is the median of private norms. What is audited is the claim of the noise, C
        being given.
        """
        return isinstance(self.main.get("clip"), str)

    @property
    def adds(self) -> bool:
        """add_remove_one: the unit is there, or contributes nothing."""
        return self.neighbours == "add_remove_one"

    @property
    def secret(self) -> bool:
        """Whether the observer does not know which draws had the unit: sampling amplifies."""
        return self.seen.mechanism in ("poisson", "fixed")

    @property
    def of_local_sums(self) -> bool:
        """Whether clients noise their messages, and the observer sees their sums alone."""
        return self.trust == "local" and self.unit == "client" and self.observer == "third_party"

    @property
    def by_sums(self) -> bool:
        """Whether the accountant counts a client as hidden by the noise of the cohort's whole sum:
        not if its own share or message alone is counted.
        """
        if self.trust != "secagg":
            return self.trust == "central"
        return bool(self.seen.scale > 1.5 * float(self.main["sampling"]["cohort"]) ** -0.5)

    @property
    def proved_scale(self) -> float:
        """The noise that is seen to hide a client, over the one of the noise multiplier. Where eps
        counts a single message or share as known, the evidence may be of sums alone.
        """
        if self.trust == "secagg" and not self.by_sums:
            return max(1.0, self.seen.scale)
        if self.of_local_sums:
            return max(math.sqrt(self.main["sampling"]["cohort"]), self.seen.scale)
        return self.seen.scale

    def sensitivity_of(self, name: str, clip: float) -> float:
        """Of a further sum: squared norms move by C^2; a bit by 1 if replaced, by 1/2 if absent."""
        if name == "norms":
            return clip**2
        return 0.5 if self.adds else 1.0


def _read(record: Mapping[str, Any]) -> Claim:
    guarantee = Guarantee.read(record)
    accounted, releases = guarantee.accounted, record["releases"]
    assert accounted is not None
    assert accounted.as_one_of
    claim = Claim(
        eps=float(record["eps"]),
        delta=float(record["delta"]),
        unit=str(record["unit"]),
        neighbours=str(record["neighbours"]),
        trust=str(record["trust"]),
        observer=str(record["observer"]),
        mechanism=str(record["mechanism"]),
        multiplier=accounted.noise_multiplier,
        views=accounted.as_one_of,
        accountant=str(record["accountant"]),
        main=dict(releases[0]),
        further={FURTHER[each["kind"]]: float(each["noise_multiplier"]) for each in releases[1:]},
        leaks=tuple(record["leaks"]),
    )
    assert claim.factor > 0
    return claim
