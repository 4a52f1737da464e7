"""The round player of one seed: algorithm, doors and optimiser, as the settings say."""

from __future__ import annotations

from dpfl_bench.assembly.algorithm import build_algorithm
from dpfl_bench.assembly.data import Data
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.released import BITS_SENSITIVITY
from dpfl_bench.config.call import call as call
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import uses_norms
from dpfl_bench.experiment import engine
from dpfl_bench.federation.doors.gradient import GradientDoor
from dpfl_bench.federation.doors.quantile import Quantile
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.local import Optimiser
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.problems.problem import Problem


def build_player(settings: Settings, budget: Budget, problem: Problem, data: Data, seed: int) -> RoundPlayer:
    """The round player of one seed."""
    privacy = settings.privacy
    closed = settings.private or privacy.bound_without_noise
    at_records = closed and privacy.unit == "record"
    return RoundPlayer(
        algorithm=build_algorithm(settings),
        problem=problem,
        federation=data.federation,
        optimiser=_optimiser(settings),
        send_door=build_send_door(settings, budget, seed)
        if closed and not at_records
        else _open_door(settings, seed),
        chunk=engine.chunk(settings, problem, data.federation),
        seed=seed,
        clip=privacy.clip if isinstance(privacy.clip, float) else 0.0,
        gradient_door=GradientDoor(privacy.fixed_clip, budget.noise.ratio, seed) if at_records else None,
        average_last=settings.average_last,
    )


def _optimiser(settings: Settings) -> Optimiser:
    decay = settings.lr_decay if settings.server_momentum_of == "direction" else 1.0
    return Optimiser(
        settings.local_momentum, settings.weight_decay, settings.server_lr, settings.server_momentum, decay
    )


def build_send_door(settings: Settings, budget: Budget, seed: int) -> SendDoor:
    """The closed door of client level."""
    privacy, companions = settings.privacy, {c.name: c for c in budget.companions}
    quantile = None
    if privacy.quantile is not None:
        noise = companions["bits"].noise_multiplier(budget.noise_multiplier) if settings.private else 0.0
        quantile = Quantile(
            privacy.quantile, privacy.quantile_lr, noise * BITS_SENSITIVITY[privacy.neighbours]
        )
    norm_noise = None
    if uses_norms(settings.algo):
        norm_noise = (
            companions["norms"].noise_multiplier(budget.noise_multiplier) if "norms" in companions else 0.0
        )
    return SendDoor(
        bound=privacy.bound,
        trust=privacy.trust,
        noise=budget.noise.ratio,
        memory=privacy.remembered,
        seed=seed,
        median=privacy.clip == "median",
        quantile=quantile,
        privunit=budget.noise.privunit,
        norm_noise=norm_noise,
        discrete=settings.private and privacy.noise == "discrete",
    )


def _open_door(settings: Settings, seed: int) -> SendDoor:
    return SendDoor(
        None,
        settings.privacy.trust,
        0.0,
        "own_message",
        seed,
        norm_noise=0.0 if uses_norms(settings.algo) else None,
    )
