"""What the settings alone show to be undefined, or to be covered by no accountant. Each refusal
names the reason and the nearest setting that works.

What shows only with schedules, releases and noise is refused in `budget/refusals.py`; what no
accountant covers, whatever run it comes from, in `privacy/refusals.py`.
"""

from __future__ import annotations

import math
from importlib.util import find_spec

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import measures, nominal
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import naive, remembers, uses_norms, warm_rounds
from dpfl_bench.federation import lot_size

LINEAR = "dpfl_bench.problems.linear."


def check(settings: Settings) -> None:
    """Raise ConfigError for the first combination that is undefined or that no accountant
    covers.
    """
    _check_backend(settings)
    _check_lr(settings)
    measures.check_scored(settings)
    _check_lots(settings)
    _check_memory(settings)
    _check_warm_rounds(settings)
    _check_client_share(settings)
    if settings.private:
        _check_noise(settings)
    if settings.private or settings.privacy.bound_without_noise:
        _check_door(settings)
        if settings.private and settings.privacy.unit == "record":
            _check_lots_of_records(settings)
        elif settings.private:
            _check_clients(settings)
        _check_clip(settings)
        _check_norms(settings)


def _check_backend(settings: Settings) -> None:
    """Opacus is there, and has records' gradients to compute. It is looked for, not imported."""
    if settings.engine.backend != "opacus":
        return
    spec = find_spec("opacus")
    if spec is None or spec.origin is None:  # a folder of that name is not the package
        raise ConfigError(
            "engine.backend=opacus: expected the package opacus, there is none; pip install"
            " 'dpfl-bench[opacus]'"
        )
    if settings.privacy.unit != "record":
        raise ConfigError(
            "engine.backend=opacus: expected privacy.unit=record, where single records' gradients are"
            f" clipped, got {settings.privacy.unit}; use engine.backend=auto"
        )


def _check_lr(settings: Settings) -> None:
    """1/L is known for linear models alone, of our own; a user's own model is seen when it is
    built.
    """
    target = str(settings.model["_target_"])
    if settings.lr == "1/L" and target.startswith("dpfl_bench.") and not target.startswith(LINEAR):
        raise ConfigError(
            "lr=1/L: expected a linear model (model=logreg or model=linreg), whose smoothness L is known,"
            f" got model={settings.model['name']}; say lr=0.1 or another number"
        )


def _check_lots(settings: Settings) -> None:
    if settings.batch_size is not None and settings.sample_rate is not None:
        raise ConfigError(
            f"sample_rate={settings.sample_rate:g}: expected one of the two, got"
            f" batch_size={settings.batch_size} too"
        )
    lot_size.check(settings.batch_size, settings.records_per_client)


def _check_memory(settings: Settings) -> None:
    """What control variates need of the cohorts and of the place where the noise is added."""
    name, privacy = settings.algo["name"], settings.privacy
    if not remembers(settings.algo):
        return
    if settings.sampling == "poisson":
        raise ConfigError(
            f"client_sampling=poisson: algo={name} needs control variates that sum to 0, and dividing by the"
            " expected cohort size breaks that; use client_sampling=fixed"
        )
    if (
        settings.private
        and privacy.unit == "client"
        and privacy.trust == "central"
        and privacy.memory != "own_update"
    ):
        raise ConfigError(
            f"privacy.trust=central: algo={name} needs control variates that sum to 0, and with noise added"
            " once at a trusted server their sum is a random walk of that noise; use privacy=secagg, or say"
            " privacy.memory=own_update to run the drifting form"
        )


def _check_warm_rounds(settings: Settings) -> None:
    """SCAFFOLD's warm start leaves rounds in which the model moves."""
    node = settings.algo.get("work", settings.algo)
    if "warm_rounds" not in node:
        return
    given = node["warm_rounds"]
    if given is not None and (not isinstance(given, int) or isinstance(given, bool)):
        raise ConfigError(f"algo.warm_rounds={given}: expected a whole number, or null")
    warm = warm_rounds(settings)
    if not 0 <= warm < settings.rounds:
        why = "" if given is not None else " (null: 1 if every client takes part, else 4 / their share)"
        raise ConfigError(
            f"algo.warm_rounds={warm}{why}: expected at least 0 and fewer than rounds={settings.rounds}, or"
            " the model never moves"
        )


def _check_client_share(settings: Settings) -> None:
    """dpscaffold's l belongs to its accountant, and says how many clients are drawn."""
    share, drawn = settings.privacy.client_share, settings.sampled_clients
    if share is None or not settings.private:
        return
    if settings.privacy.accountant != "paper" or settings.sampling != "fixed":
        raise ConfigError(
            f"privacy.client_share={share:g}: expected privacy.accountant=paper and sampled clients"
            f" (client_sampling=fixed), got {settings.privacy.accountant} and {settings.sampling}; leave it"
            " out"
        )
    whole = math.floor(share * settings.clients + 1e-9)  # .29 * 100 is a little less than 29
    if whole != drawn:
        raise ConfigError(
            f"privacy.client_share={share:g}: of clients={settings.clients} it draws {whole}, expected"
            f" sampled_clients={whole}, got {drawn}; say the two alike"
        )


def _check_noise(settings: Settings) -> None:
    """How much noise: the keys that each calibration needs, and no others."""
    algo, privacy = settings.algo, settings.privacy
    if not algo["private"]:
        raise ConfigError(
            f"eps={settings.eps:g}: algo={algo['name']} is the one without privacy; use"
            f" algo=dp_{algo['name']} or eps=inf"
        )
    epsilons = {f"eps{k}": value for k, value in enumerate((privacy.eps0, privacy.eps1, privacy.eps2))}
    gaussian = privacy.mechanism == "gaussian"
    wanted = {
        "fixed": ["noise_multiplier"] if gaussian else list(epsilons),
        "formula": ["v"],
        "exact": [],
    }[privacy.calibration]
    for key, value in {"noise_multiplier": privacy.noise_multiplier, "v": privacy.v, **epsilons}.items():
        if key in wanted and value is None:
            raise ConfigError(
                f"privacy.{key}=null: expected a number > 0 with privacy.calibration={privacy.calibration}"
            )
        if key not in wanted and value is not None:
            use = "fixed" if key != "v" else "formula"
            remedy = (
                f"say privacy.calibration={use}, or leave it out"
                if key == "v" or gaussian != key.startswith("eps")
                else "leave it out"
            )
            raise ConfigError(
                f"privacy.{key}={value:g}: unused with privacy.calibration={privacy.calibration} and "
                f"privacy.mechanism={privacy.mechanism}; {remedy}"
            )
    nominal.check(privacy)
    if privacy.calibration == "formula" and not (gaussian and privacy.unit == "client"):
        raise ConfigError(
            "privacy.calibration=formula: the formula is for Gaussian noise on a client's update; use"
            " privacy.calibration=exact or privacy.calibration=fixed"
        )


def _check_door(settings: Settings) -> None:
    """Record level: what belongs to the door that is open there."""
    privacy = settings.privacy
    if privacy.unit == "client":
        return
    reason = "acts on what a client sends, and at privacy.unit=record the noise is in each gradient instead"
    for key, value, usual in (
        ("mechanism", privacy.mechanism, "gaussian"),
        ("noise", privacy.noise, "gaussian"),
        ("bound", privacy.bound, "clip"),
        ("memory", privacy.memory, None),
        ("colluding", privacy.colluding, 0),
        ("quantile", privacy.quantile, None),
        ("norm_noise", privacy.norm_noise, None),
    ):
        if value != usual:
            remedy = "leave it out" if usual is None else f"say privacy.{key}={usual}"
            shown = f"{value:g}" if isinstance(value, float) else value
            raise ConfigError(f"privacy.{key}={shown}: {reason}; {remedy}, or say privacy.unit=client")
    if "target_step" in settings.measure:
        raise ConfigError(
            "measure=[target_step]: expected updates without noise, and at privacy.unit=record the noise is"
            " in each gradient that they are made of; leave it out, or say privacy.unit=client"
        )


def _check_lots_of_records(settings: Settings) -> None:
    """Lots that no accountant covers, and steps that are undefined on noised gradients."""
    privacy, name = settings.privacy, settings.algo["name"]
    if privacy.trust == "central":
        raise ConfigError(
            "privacy.trust=central: at privacy.unit=record each client adds its noise to its own gradients,"
            " so there is nothing left for a trusted server to add; use privacy=record"
        )
    if settings.lots == "poisson" and privacy.neighbours == "replace_one":
        raise ConfigError(
            f"privacy.neighbours=replace_one: Poisson lots (sample_rate={settings.sample_rate:g}) are"
            " accounted for under privacy.neighbours=add_remove_one; say that, or use batch_size=N"
        )
    if settings.lots == "fixed" and privacy.neighbours == "add_remove_one":
        raise ConfigError(
            f"privacy.neighbours=add_remove_one: lots of fixed size (batch_size={settings.batch_size}) are"
            " accounted for under privacy.neighbours=replace_one; say that, or use sample_rate=R"
        )
    if uses_norms(settings.algo) and not naive(settings.algo):
        raise ConfigError(
            f"privacy.unit=record: algo={name} subtracts the noise's share of the updates' norms, and after"
            " local steps on noised gradients that share is unknown; say algo.naive=true for the biased"
            " step, or privacy.unit=client"
        )


def _check_clients(settings: Settings) -> None:
    privacy = settings.privacy
    if privacy.mechanism == "privunit" and privacy.noise != "gaussian":
        raise ConfigError(
            f"privacy.noise={privacy.noise}: unused, privacy.mechanism=privunit has no noise of its own;"
            " leave it out"
        )
    if privacy.mechanism == "privunit" and privacy.quantile is not None:
        raise ConfigError(
            f"privacy.quantile={privacy.quantile:g}: its bits carry Gaussian noise, which is not accounted"
            " for beside the pure privacy of privacy.mechanism=privunit; leave it out, or say"
            " privacy.mechanism=gaussian"
        )
    if privacy.mechanism == "privunit" and privacy.trust != "local":
        raise ConfigError(
            f"privacy.trust={privacy.trust}: privacy.mechanism=privunit randomises each client's own message,"
            " and no share of it adds up to less noise on a sum; use privacy=local"
        )
    if privacy.colluding and privacy.trust != "secagg":
        why = (
            "each message already carries all of its noise"
            if privacy.trust == "local"
            else "clients hold no share of the noise"
        )
        raise ConfigError(
            f"privacy.colluding={privacy.colluding}: under privacy.trust={privacy.trust} {why}; leave it out"
        )
    if privacy.colluding >= settings.sampled_clients > 0 and privacy.colluding:
        raise ConfigError(
            f"privacy.colluding={privacy.colluding}: expected fewer than a cohort's"
            f" {settings.sampled_clients} clients, for somebody's share of the noise has to stay secret; use"
            " privacy=local"
        )


def _check_clip(settings: Settings) -> None:
    """C that follows the norms."""
    privacy = settings.privacy
    if privacy.clip != "median":
        return
    if privacy.quantile is not None:
        raise ConfigError(
            f"privacy.quantile={privacy.quantile:g}: expected privacy.clip to be the number it starts from,"
            " got median"
        )
    if privacy.unit == "record" and settings.lots == "poisson":
        raise ConfigError(
            f"privacy.clip=median: a Poisson lot (sample_rate={settings.sample_rate:g}) may be empty; use"
            " batch_size=N or privacy.clip=C"
        )


def _check_norms(settings: Settings) -> None:
    """FedEXP's step: what the updates' norms cost, and where its forms are defined."""
    privacy, name = settings.privacy, settings.algo["name"]
    sums = privacy.trust != "local"
    if uses_norms(settings.algo) and naive(settings.algo) and sums:
        raise ConfigError(
            f"algo.naive=true: under privacy.trust={privacy.trust} the server has no single messages whose"
            " norms it could take; use privacy=local, or algo.naive=false"
        )
    if privacy.norm_noise is not None and not (uses_norms(settings.algo) and sums):
        raise ConfigError(
            f"privacy.norm_noise={privacy.norm_noise:g}: unused, algo={name} under"
            f" privacy.trust={privacy.trust} releases no sum of squared norms; leave it out"
        )
