"""The number format of noise: as wide as the sum that it is added to."""

from __future__ import annotations

import numpy as np
import torch

from dpfl_bench.privacy import mechanisms

FORMATS: dict[torch.dtype, mechanisms.Format] = {torch.float32: np.float32, torch.float64: np.float64}
