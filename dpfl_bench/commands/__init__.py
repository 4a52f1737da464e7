"""One file a verb: its arguments in, text or JSON out. `arguments.py` has what the verbs share, and
`overview.py` is `dpfl-bench --help`.
"""
