"""The number format of noise: as wide as the sum that it is added to."""

from __future__ import annotations

import numpy as np
import torch

from dpfl_bench.privacy import noise_draws

FORMATS: dict[torch.dtype, noise_draws.Format] = {torch.float32: np.float32, torch.float64: np.float64}
