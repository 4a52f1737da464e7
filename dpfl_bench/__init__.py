"""dpfl-bench: experiments in differentially private federated learning."""

__version__ = "0.1.0"
RESULTS_VERSION = 10  # bump when a change moves any number that a run writes (see CHANGELOG, "Numbers")
