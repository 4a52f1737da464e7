"""Many runs.

| file | what it is |
|---|---|
| points.py | every combination of what is swept, validated |
| applied.py | a parameter of one algorithm, where the sweep has several |
| recipe.py | a sweep as a YAML file describes it: its jobs and commands |
| gathered.py | what is finished of it, and what is lacking |
| stages.py | `key=best:FOLDER`: what was best in an earlier sweep |
| whole_sweep.py | a sweep from its command to its last line |
| one_run.py | the same for one run |
| dry_run.py, estimate.py | the jobs without running them, and how long they may take |
| progress.py, status.py | where a sweep stands; the command for the rest |
| replay.py | a run folder's question again |
| fork_server.py, fork_server_imports.py | has imported everything; workers are forked from it |
| launchers/ | how the points are run |
"""
