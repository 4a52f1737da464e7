"""`dpfl-bench reproduce`: the tables and figures of papers, from YAML files in conf/paper/.

| file | what it is |
|---|---|
| artefact.py | a YAML file as typed data |
| overlays.py | its sweeps at a scale and in a reading |
| fields.py | whether runs have the fields that it names |
| evidence.py | its sweeps and what there is of them |
| verdict.py | verdict.json, and the files beside it |
| overview.py | `list papers`: what there is, and what came of it |
| report.py | report.html: everything in one file |
| check.py | `--check`: whether the numbers are the committed ones |
| dry_run.py | what there is to compute, and for how long |
| reproduce.py | the whole |
"""
