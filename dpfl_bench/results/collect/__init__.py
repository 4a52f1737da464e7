"""`dpfl-bench collect`: run folders in; the optimal-(E, T) table and the U-curves out.

| file | what it is |
|---|---|
| gather.py | the whole |
| folders.py | the run folders below a folder |
| columns.py | which settings were swept |
| measures.py | what a run measured, by seed: any column of metrics.csv |
| points.py | runs that differ in seeds alone, as one point |
| best.py | the best point of each kind |
| mixed.py | runs of different code or data |
| eps_of_all.py | the eps of all models of a point |
| audited.py | what audits found |
| tuning.py | the eps of "best of the sweep" |
| caveats.py, edges.py | what a table would mislead by |
| view.py, pictures.py | what was asked for: which runs, by what, over what; the figures |
| times.py | when, where and how long, in a file of its own |
| tables.py | Markdown, CSV |
| latex.py | for a paper: the table, and the figures with captions |
"""
