"""`dpfl-bench reproduce`: the tables and figures of papers, from YAML files in conf/paper/.

| file | what it is |
|---|---|
| artefact.py | a YAML file as typed data |
| shape.py | what its keys may hold |
| sweeps.py | the jobs of an artefact, at a scale and in a reading |
| fields.py | whether runs have the fields that it names |
| gather.py | what is finished of them, and what is lacking |
| printed.py | printed numbers next to ours |
| budgets.py | nominal eps, and the eps that holds |
| figures.py, tables.py | what is drawn and written |
| verdict.py | verdict.json, and the files beside it |
| overview.py | `list papers`: what there is, and what came of it |
| report.py, page.py, inline_svg.py | report.html: everything in one file |
| reproduce.py | the whole |
"""
