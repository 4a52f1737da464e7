"""The errors of bad input: one line that says what came, what was expected and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# of paths and file systems, which a user can change; any other error of the system is a bug
_OF_PATHS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(
        errno.ENOENT,
        errno.ELOOP,
        errno.EIO,
        errno.ENXIO,
        errno.ENODEV,
        errno.EINVAL,
        errno.EMFILE,
        errno.ESTALE,
    ),
)


class ConfigError(ValueError):
    """A setting that cannot be: one line that names key, value and remedy."""


class NotForeseeable(ConfigError):
    """Settings from which something cannot be told before the data are loaded or a user's own code
    is called. `plan` refuses them; a run goes on and sees.
    """


@contextmanager
def located(where: object) -> Iterator[None]:
    """An error inside says where it is."""
    try:
        yield
    except ConfigError as error:
        raise type(error)(f"{where}: {error}") from None


def one_line(error: BaseException) -> str | None:
    """What a user is told of an error that is no bug: a refusal of ours, or a file that cannot be
    read or written. None for every other one, which keeps its traceback.
    """
    if isinstance(error, ValueError) and type(error).__module__.partition(".")[0] == "dpfl_bench":
        return str(error)
    return _of_the_system(error) if isinstance(error, OSError) else None


def _of_the_system(error: OSError) -> str | None:
    """One line about a file that cannot be read or written; None for an error of another kind."""
    where = f"{error.filename}: " if error.filename is not None else ""
    if error.errno in _FULL:
        return f"{where}{error.strerror}; expected room to write; free some, or say outputs= for elsewhere"
    if error.errno in _OF_PATHS:
        return (
            f"{where}{error.strerror}; expected a path that can be read and written (outputs=, dataset.root=)"
        )
    return None
