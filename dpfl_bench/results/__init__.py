"""What runs leave on disk, and what is made of it.

| file | what it is |
|---|---|
| folder.py | a run folder and its files |
| lock.py, attempt.py | one process at a time in a folder |
| origin.py, code_hashes.py | the code and data that made a result, by hashes |
| provenance.py | whether they are those of now |
| environment.py | env.json and diff.patch |
| where_it_was.py | back to where a run was computed |
| made.py | what made a set of runs, and on which kind of machine |
| agreement.py | whether two tables have the same numbers, by bits or by intervals |
| sweeps.py | sweep.json |
| summary.py | a result in one line |
| standing.py | where a running run stands |
| hyper_parameters.py | what trackers are told of a run |
| differences.py | where two run folders differ |
| plots.py, trackers.py | pictures; TensorBoard and Weights & Biases |
| escape.py, json_numbers.py, text_table.py | names, numbers and tables in other formats |
| select/ | numbers of runs, by setting |
| verdicts/ | whether a statement about runs holds |
| figures/ | figures for publication, of plain data |
| exhibits/ | figures and tables of runs, as a YAML file describes them |
| pages/ | HTML in one file |
| collect/ | many runs in one table |
"""
