"""What is refused of `privacy.nominal`, the eps that a paper states for noise that is its own."""

from __future__ import annotations

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Privacy


def check(privacy: Privacy) -> None:
    """A paper's own eps stands beside noise that is the paper's."""
    if privacy.nominal is not None and privacy.calibration == "exact":
        raise ConfigError(
            f"privacy.nominal={privacy.nominal:g}: privacy.calibration=exact solves the noise for eps, so no"
            " other eps is stated for it; say privacy.calibration=fixed or privacy.calibration=formula, or"
            " leave it out"
        )
    if privacy.nominal_how is None:
        return
    if privacy.nominal is None and privacy.calibration != "formula":
        raise ConfigError(
            f"privacy.nominal_how={privacy.nominal_how}: expected privacy.nominal, the eps that it is about"
        )
    if not 0 < len(privacy.nominal_how.strip()) <= 80 or not privacy.nominal_how.isprintable():
        raise ConfigError(
            "privacy.nominal_how: expected a few words on one line (80 letters at most), like 'Theorem 3'"
        )
