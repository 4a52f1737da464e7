"""Whether what lies in a run's folder was made by the code and on the data that are there now.

The folder is named by settings, and code and files change without them. Nothing is taken, continued
or computed anew behind the user's back: where a target's code or the data differ, the user says
which it is to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.data import contents
from dpfl_bench.data.contents import Contents, Load
from dpfl_bench.machine import sealed
from dpfl_bench.results import origin
from dpfl_bench.results.folder import BROKEN, RunFolder
from dpfl_bench.results.origin import Origin


@dataclass(frozen=True)
class Finding:
    """What is to be said of one folder. `differs` is empty where only the rest of this package is
    other code.
    """

    folder: RunFolder
    now: Origin
    differs: list[str] = field(default_factory=list)
    begun: bool = False  # it is a checkpoint that was made by them, not a result
    stranger: str | None = None  # another run's id, whose result lies here
    commit: str = ""  # by which the result was computed, where only the rest of the package differs
    lacks: bool = False  # the data are not here to be compared
    accepted: str | None = None  # when somebody took the result although other code or data made it

    def question(self) -> str:
        """For the user, with the ways out."""
        verb = "begun" if self.begun else "computed"
        what = " and ".join(f"other {part}" for part in self.differs)
        keeps = f"--force to compute it anew (this folder is kept as {self.folder.path.name}.old-N)"
        if self.begun and any(part.startswith("data") for part in self.differs):
            return (
                f"{self.folder.path}: {verb} with {what} than are there now; expected the same; bring them"
                f" back, or say {keeps}"
            )
        other = "--accept to go on with the code of now" if self.begun else "--accept to take the old result"
        return (
            f"{self.folder.path}: {verb} with {what} than are there now; expected the same; say {keeps}, or"
            f" {other}"
        )

    @property
    def acceptable(self) -> bool:
        """Half a run on other records is a run on neither."""
        return not (self.begun and any(part.startswith("data") for part in self.differs))


class Asker:
    """Looks at folders; each data set is looked at once."""

    def __init__(self, load: Load | None) -> None:
        """load: calls a data set's loader, where that is a user's own; None: those are not
        compared.
        """
        self._load, self._known = load, dict[str, Contents | None]()

    def data(self, settings: Settings) -> Contents | None:
        key = repr(sorted(settings.dataset.items(), key=lambda item: item[0]))
        if key not in self._known:
            known = contents.has_known_files(settings.dataset, own=self._load is not None)
            self._known[key] = (
                contents.now(settings.dataset, self._load or _nothing) if known or self._load else None
            )
        return self._known[key]

    def look(self, settings: Settings, folder: RunFolder) -> Finding | None:
        """None where there is nothing to say: nothing lies there, or what lies there is what would
        be computed now.
        """
        try:
            stranger, result = folder.stranger, folder.finished
        except OSError:  # what lies there cannot be read at all, and the run will say so
            return None
        if stranger:
            return Finding(folder, Origin({}, None), stranger=stranger)
        then = _then(result) if result else _begun_by(folder, settings.run_id)
        if then is None:
            return None
        now = Origin(origin.code_of(settings), self.data(settings))
        differs = origin.differing(then, now, folder)
        when = origin.accepted(folder, now) if differs else None
        if differs and not when:
            return Finding(folder, now, differs, begun=not result)
        if differs:
            return Finding(folder, now, accepted=when)
        other = bool(result) and then.get("package") != now.hashes["package"]
        lacks = bool(result) and now.data is None
        return (
            Finding(folder, now, commit=_computed_by(folder) if other else "", lacks=lacks)
            if other or lacks
            else None
        )


def _nothing(dataset: object) -> Any:
    raise OSError


def _then(result: dict[str, Any]) -> dict[str, Any]:
    then = result.get("origin")
    return then if isinstance(then, dict) else {}


def _begun_by(folder: RunFolder, run_id: str) -> dict[str, Any] | None:
    """What the newest checkpoint tells. One that is damaged, or another run's, is not gone on
    from.
    """
    for file in (folder.checkpoint, folder.previous):
        try:
            footer = sealed.footer(file)
        except (OSError, sealed.Broken):
            continue
        if footer.get("run_id") == run_id:
            then = footer.get("origin")
            return then if isinstance(then, dict) else {}
    return None


def _computed_by(folder: RunFolder) -> str:
    """The commit, or what else is known of the code."""
    try:
        environment = folder.read("env.json") or {}
        commit, version = environment.get("commit"), environment.get("dpfl_bench", "of an unknown version")
    except BROKEN:
        return "an unknown version"
    return (
        f"commit {commit[:10]}{' with changes' if environment.get('dirty') else ''}"
        if commit
        else f"version {version}"
    )


@dataclass(frozen=True)
class Answer:
    """What the user said to do where code or data differ."""

    force: bool = False
    accept: bool = False

    def __post_init__(self) -> None:
        if self.force and self.accept:
            raise ConfigError(
                "--force, --accept: expected one of the two; --force computes anew, --accept takes what is"
                " there"
            )


def refused(findings: Iterable[Finding], answer: Answer) -> list[str]:
    """The questions that the answer does not answer."""
    asked = [finding for finding in findings if finding.differs]
    return [f.question() for f in asked if not (answer.force or (answer.accept and f.acceptable))]


def settle(findings: Sequence[Finding], answer: Answer, say: Callable[[str], None]) -> None:
    """Do as the answer says, once nothing is refused any more, and say what was done."""
    for finding in findings:
        folder = finding.folder
        if finding.stranger:
            say(
                f"{folder.path}: holds the result of run {finding.stranger}, kept as"
                f" {folder.set_aside().name}"
            )
        elif finding.differs and answer.force:
            say(
                f"{folder.path}: computed anew; what other {' and '.join(finding.differs)} made is kept as"
                f" {folder.set_aside().name}"
            )
        elif finding.differs:
            origin.accept(folder, finding.now)
            say(
                f"{folder.path}: taken as it is, though made with other {' and '.join(finding.differs)};"
                f" noted in {origin.FILE}"
            )
    _tell_the_rest(findings, say)


def _tell_the_rest(findings: Sequence[Finding], say: Callable[[str], None]) -> None:
    """Together: there may be hundreds."""
    for commit in dict.fromkeys(finding.commit for finding in findings if finding.commit):
        folders = [str(finding.folder.path) for finding in findings if finding.commit == commit]
        them = folders[0] if len(folders) == 1 else f"{len(folders)} finished runs"
        say(
            f"{them}: computed by {commit}; the code that they name and the data are the same, the rest of"
            " dpfl-bench is not: taken"
        )
    for finding in findings:
        if finding.accepted:
            say(f"{finding.folder.path}: made with other code or data, accepted at {finding.accepted}")
    lacking = [str(finding.folder.path) for finding in findings if finding.lacks]
    if lacking:
        them = lacking[0] if len(lacking) == 1 else f"{len(lacking)} finished runs"
        say(f"{them}: the data are not here, so that nobody compared them: taken")
