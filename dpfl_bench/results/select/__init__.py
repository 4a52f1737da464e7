"""Numbers of finished runs, by setting: what figures, tables and claims are made of.

| file | what it is |
|---|---|
| expressions.py | arithmetic over named quantities |
| sources.py | a run, a plan or a deal of records, as fields and quantities |
| cells.py | sources grouped by fields, with a value for each seed and split |
| selection.py | which numbers, as a YAML file says it |
| budgets.py | nominal eps, and the eps that holds |
| intervals.py | intervals of means, of paired differences and of predictions |
"""
