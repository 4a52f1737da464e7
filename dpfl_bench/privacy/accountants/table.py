"""The accountants, tightest first. A new one is a file beside this one and a line in `TABLE`.

`privacy.accountant=auto` reads the table from the top. A valid accountant with auto="alone" is
taken and no other one is asked: nothing is tighter there. Else every valid accountant with
auto="compared" is asked, and the smallest eps holds; of equal ones the first. An accountant with
auto="never" is asked by its name only.

Importing this imports no numpy: the settings read the names from here.
"""

from __future__ import annotations

from importlib.util import find_spec

from dpfl_bench.privacy import refusals
from dpfl_bench.privacy.accountants import basic, dpscaffold, exact, own, pld, prv, rdp
from dpfl_bench.privacy.accountants.accountant import Accountant
from dpfl_bench.privacy.released.composition import Composition

TABLE: list[Accountant] = [
    exact.ACCOUNTANT,
    pld.ACCOUNTANT,
    rdp.ACCOUNTANT,
    basic.ACCOUNTANT,
    prv.ACCOUNTANT,
    dpscaffold.ACCOUNTANT,
]


def names() -> tuple[str, ...]:
    """What `privacy.accountant` may be: auto, every accountant in the table's order, and a user's
    own.
    """
    ours = [accountant.name for accountant in TABLE]
    return ("auto", *ours, *(name for name in own.files() if name not in ours))


def named(name: str) -> Accountant:
    """The accountant of that name. PrivacyError where there is none, or where its package is not
    installed.
    """
    for accountant in TABLE:
        if accountant.name == name:
            if not installed(accountant):
                raise refusals.package_missing(name, accountant.needs)
            return accountant
    if users := own.named(name):
        return users
    raise refusals.unknown_accountant(name, names())


def installed(accountant: Accountant) -> bool:
    """Whether the package that the accountant needs can be imported; none is imported here."""
    return accountant.needs is None or find_spec(accountant.needs) is not None


def valid_for(composition: Composition) -> tuple[Accountant, ...]:
    """The accountants that bound a composition and that `auto` may ask, tightest first."""
    return tuple(
        accountant
        for accountant in TABLE
        if accountant.auto != "never" and accountant.refusal(composition) is None
    )


def under_auto(composition: Composition) -> tuple[Accountant, ...]:
    """The accountants that `auto` asks: the first that nothing beats, else all valid ones."""
    valid = valid_for(composition)
    return tuple(accountant for accountant in valid if accountant.auto == "alone")[:1] or valid
