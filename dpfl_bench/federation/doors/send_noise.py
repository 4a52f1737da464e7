"""The noise of the send door in one round.

| privacy.trust | who adds it | to what |
|---|---|---|
| local | each client | its own message |
| secagg | each client, its share of the sum's noise | its own message |
| central | the server | the sum of the messages |

PrivUnit randomises each message instead. The sums beside the messages' (squared norms, bits) carry
the server's noise; under local trust squared norms follow from the messages and need none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.federation.doors.formats import FORMATS
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.machine import device
from dpfl_bench.privacy import noise_draws, noise_grid


@dataclass(frozen=True)
class SendNoise:
    """Draws and adds the noise of one round whose clipping norm is `clip`."""

    door: SendDoor
    round: PlannedRound
    clip: float

    @property
    def std(self) -> float:
        """Standard deviation of one draw: of a client's noise, its share of it, or the server's."""
        share = len(self.round.cohort) ** -0.5 if self.door.trust == "secagg" else 1.0
        return self.door.noise * self.clip * share

    @property
    def squares_std(self) -> float:
        """Standard deviation of the noise on the sum of squared norms."""
        return (self.door.norm_noise or 0.0) * self.clip**2

    def on_messages(self, bounded: Tensor, clients: np.ndarray) -> Tensor:
        """What each client sends: (c, d). PrivUnit computes on the CPU, and so its messages are
        there.

        bounded: the clients' bounded updates, (c, d). clients: their indices, (c,).
        """
        door = self.door
        if door.privunit is not None:
            units = bounded.cpu().double().numpy() / self.clip
            randomised = door.privunit.randomise(
                units, noise_draws.privunit_streams(door.seed, self.round.index, clients)
            )
            return torch.from_numpy(randomised * self.clip).to(bounded.dtype)
        if door.trust == "central" or door.noise == 0:
            return bounded
        noise = noise_draws.client_gaussian(
            door.seed, self.round.index, clients, bounded.shape[1], self.std, FORMATS[bounded.dtype]
        )
        return bounded + device.placed(self._on_grid(noise), bounded, bounded.dtype)

    def on_total(self, total: Tensor) -> Tensor:
        """The sum of the messages as the server releases it: (d,) -> (d,)."""
        if self.door.trust != "central":
            return total
        noise = noise_draws.server_gaussian(
            self.door.seed, self.round.index, len(total), self.std, FORMATS[total.dtype]
        )
        return total + device.placed(self._on_grid(noise), total, total.dtype)

    def on_squares(self, clients: int, dimension: int) -> float:
        """What to add to the sum of squared norms.

        Under local trust (`fedexp`, eq. (6)): minus the expected square norm of the clients' noise.
        Else (eq. (7)): noise, for the server cannot see the single messages.
        """
        door = self.door
        if door.norm_noise is None or door.privunit is not None:
            return 0.0
        if door.trust == "local":
            return -clients * dimension * (door.noise * self.clip) ** 2
        return self._scalar("norm-noise", self.squares_std)

    def on_bits(self, std: float) -> float:
        """Noise for the sum of (1[norm <= C] - 1/2)."""
        return self._scalar("bit-noise", std)

    def _on_grid(self, noise: np.ndarray) -> np.ndarray:
        return noise_grid.nearest(noise, noise_grid.spacing(self.std)) if self.door.discrete else noise

    def _scalar(self, what: str, std: float) -> float:
        """Noise on a number beside the sum; where that lies on a grid of halves or finer, so does
        the noise.
        """
        drawn = noise_draws.server_scalar(self.door.seed, self.round.index, what, std)
        return (
            float(noise_grid.nearest(np.array(drawn), min(0.5, noise_grid.spacing(std))))
            if self.door.discrete
            else drawn
        )
