"""One file a verb: its arguments in, text or JSON out. `arguments.py` has what the verbs share, and
`overview.py` is `dpfl-bench --help`.
"""

from __future__ import annotations

# each has a file here, whose `command` takes the words after the verb and returns the exit code
VERBS = (
    *("run", "plan", "audit", "replay", "status", "collect", "reproduce", "data", "list", "new"),
    *("completion", "version"),
)
