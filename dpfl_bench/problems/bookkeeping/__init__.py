"""Record-level gradients from one forward and one backward pass."""

from dpfl_bench.problems.bookkeeping.layers import Layers, Untappable, layers_of
from dpfl_bench.problems.bookkeeping.tapped import Tapped, supported

__all__ = ["Layers", "Tapped", "Untappable", "layers_of", "supported"]
