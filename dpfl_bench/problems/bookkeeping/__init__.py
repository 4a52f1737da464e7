"""Record-level gradients from one forward and one backward pass."""

from dpfl_bench.problems.bookkeeping.layers import Untappable
from dpfl_bench.problems.bookkeeping.tapped import Tapped, supported

__all__ = ["Tapped", "Untappable", "supported"]
