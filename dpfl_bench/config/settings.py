"""The typed settings of a run: what the composed YAML means once it has passed validation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from dpfl_bench.config import identity
from dpfl_bench.data.source import source_of
from dpfl_bench.federation import dealing, lot_size
from dpfl_bench.federation.dealing import Dealing


@dataclass(frozen=True)
class Privacy:
    name: str
    unit: Literal["client", "record"]
    neighbours: Literal["replace_one", "add_remove_one"]
    trust: Literal["local", "secagg", "central"]
    observer: Literal["server", "third_party"] | None
    bound: Literal["clip", "normalise"]
    clip: float | Literal["median"]
    quantile: float | None
    quantile_lr: float
    quantile_noise: float
    bound_without_noise: bool
    memory: Literal["own_message", "own_update"] | None
    colluding: int
    mechanism: Literal["gaussian", "privunit"]
    noise: Literal["gaussian", "discrete"]
    eps0: float | None
    eps1: float | None
    eps2: float | None
    norm_noise: float | None
    calibration: Literal["exact", "formula", "fixed"]
    v: float | None
    noise_multiplier: float | None
    nominal: float | None  # the eps that a paper states
    nominal_how: str | None
    accountant: str  # one of privacy.accountants.table.names()
    client_share: float | None

    @property
    def ratio(self) -> int:
        """Sensitivity / C of a sum of bounded terms: 2 if one is replaced, 1 if it falls silent."""
        return 2 if self.neighbours == "replace_one" else 1

    @property
    def fixed_clip(self) -> float | None:
        """C where it stays what it was; None where it follows the norms."""
        return None if self.quantile is not None or isinstance(self.clip, str) else self.clip

    @property
    def sensitivity(self) -> float | None:
        """How far one client moves the cohort's sum, or one record its lot's."""
        return None if self.fixed_clip is None else self.fixed_clip * self.ratio

    @property
    def remembered(self) -> str:
        """What a client with control variates remembers of a round: its message with the noise in
        it, or its update without.
        """
        return self.memory or (
            "own_message" if self.trust == "local" or self.unit == "record" else "own_update"
        )

    @property
    def bounded_observer(self) -> Literal["server", "third_party"]:
        return self.observer or ("third_party" if self.trust == "central" else "server")


@dataclass(frozen=True)
class Engine:
    backend: Literal["auto", "closed_form", "flat", "vmap", "loop", "opacus"]
    workers: int | None
    memory: float | None
    memories: Literal["ram", "disk"]
    gpu_memory: float
    chunk: int | None
    rank_timeout: int


@dataclass(frozen=True)
class Theory:
    psi0: float | None
    L: float | None
    measured: bool


@dataclass(frozen=True)
class Settings:
    """A whole run. The four dicts are the chosen groups: `_target_`, `name` and the target's own
    parameters.
    """

    eps: float
    delta: float
    stop_at_eps: float | None
    rounds: int
    local_steps: int
    total_steps: int
    clients: int
    sampled_clients: int
    client_sampling: Literal["fixed", "poisson"]
    batch_size: int | None
    sample_rate: float | None
    records: int | None
    lr: float | Literal["1/L"]
    lr_decay: float
    local_momentum: float
    weight_decay: float
    server_lr: float
    server_momentum: float
    server_momentum_of: Literal["step", "direction"]
    average_last: int
    seed: int
    repeats: int
    device: str
    dtype: Literal["float32", "float64"]
    eval_every: int
    eval_last: int
    evaluate: Literal["all", "test"]
    train_subset: int | None
    measure: list[str]
    measured_client: int
    checkpoint_every: int
    outputs: str
    plot: bool
    trackers: list[str]
    engine: Engine
    theory: Theory
    privacy: Privacy
    algo: dict[str, Any]
    dataset: dict[str, Any]
    model: dict[str, Any]
    partition: dict[str, Any]

    @property
    def private(self) -> bool:
        return self.eps != float("inf")

    @property
    def sampling(self) -> Literal["full", "fixed", "poisson"]:
        """Of clients: full | fixed | poisson."""
        return "full" if self.sampled_clients == self.clients else self.client_sampling

    @property
    def lots(self) -> Literal["full", "fixed", "poisson"]:
        """How a local step draws its records: full | fixed (batch_size of them) | poisson (each at
        sample_rate).
        """
        return lot_size.kind(self.batch_size, self.sample_rate)

    @property
    def dealing(self) -> Dealing | None:
        """How the partition deals the records, as its function says; None for a user's own."""
        return dealing.of(self.partition)

    @property
    def overlapping(self) -> bool | None:
        """Whether a record may sit in several clients; None where nobody knows before the data are
        dealt.
        """
        if self.dealing is not None:
            return self.dealing.overlapping
        return {"overlapping": True, "disjoint": False}.get(self.partition.get("deals", ""))

    @property
    def smallest_client(self) -> int | None:
        """Training records of the smallest client at least, as far as the files and the partition
        know; None else.
        """
        known, says = self.dataset["records"], self.dealing
        if self.records is not None or known is None or says is None:
            return self.records
        return says.smallest(known, self.clients, self.partition)

    @property
    def records_per_client(self) -> int | None:
        """The mean, rounded down: an upper bound for the smallest client. None for a user's own
        partition, which may leave records out.
        """
        known = self.dataset["records"] if self.dealing is not None else None
        return (
            self.records
            if self.records is not None or known is None
            else equal_share(known, self.partition, self.clients)
        )

    @property
    def leaks(self) -> list[str]:
        """What of the private data goes into training outside every accountant."""
        where = "each lot's gradients" if self.privacy.unit == "record" else "each cohort's updates"
        leaks = []
        if self.privacy.clip == "median":
            leaks.append(f"privacy.clip=median: C is the median of the norms of {where}, without noise")
        if self.model.get("init") == "near_optimum":
            leaks.append(
                "model.init=near_optimum: the initial model is made of the exact optimum of the private data"
            )
        if self.lr == "1/L":
            leaks.append(
                "lr=1/L: the learning rate follows from the smoothness of the clients' losses on their"
                " records, without noise"
            )
        leaks += _of_the_data(self.dataset)
        if self.privacy.accountant == "paper":
            leaks.append("privacy.accountant=paper: dpscaffold's own accountant credits what does not hold")
        return leaks if self.private else []

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.repeats)

    def evaluated(self, done: int, rounds: int) -> bool:
        """Whether the model is evaluated after the first `done` of so many rounds."""
        return done % self.eval_every == 0 or done > rounds - self.eval_last

    @property
    def whole_train_loss(self) -> bool:
        """Whether train_loss is the objective: every training record is scored."""
        return self.evaluate == "all" and self.train_subset is None

    @property
    def run_id(self) -> str:
        """10 hex of everything that can change a number, and the version of the code's results."""
        return identity.run_id(_plain(self), self._doors_open)

    @property
    def point_id(self) -> str:
        """The same without all seeds and how often is evaluated: runs with one point_id are repeats
        of each other.
        """
        return identity.point_id(_plain(self), self._doors_open)

    @property
    def _doors_open(self) -> bool:
        """Whether nothing is bounded and no noise is added."""
        return not self.private and not self.privacy.bound_without_noise


def _of_the_data(dataset: dict[str, Any]) -> list[str]:
    """Statistics of the records that change what every client trains on (docs/privacy-data.md, what
    of the data a run uses).
    """
    leaks = []
    if dataset.get("standardise") == "data":
        leaks.append(
            "dataset.standardise=data: mean and deviation of each feature are those of the training records,"
            " without noise"
        )
    if dataset.get("transform") == "pca":
        leaks.append(
            "dataset.transform=pca: the mean and the directions of PCA are those of the training records,"
            " without noise"
        )
    source = source_of(dataset)
    if source is not None and source.leaks is not None:
        leaks += source.leaks(dataset)
    for key, fact in (("shape", "how many features there are"), ("classes", "which labels there are")):
        if dataset[key] is None:
            leaks.append(
                f"dataset.{key}=null: {fact} is read off the records, and the model's size follows; where it"
                " is public, say it"
            )
    return leaks


def equal_share(records: int, partition: dict[str, Any], clients: int) -> int:
    """A client's records on average, rounded down."""
    says = dealing.of(partition)
    return records // clients if says is None else says.mean(records, clients, partition)


def _plain(record: Settings | Privacy | Engine | Theory) -> dict[str, Any]:
    """Every field under its name; records within it as dictionaries, too."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return {key: _plain(v) if isinstance(v, Privacy | Engine | Theory) else v for key, v in values.items()}
