"""A cluster: the points as tasks of Slurm arrays.

| file | what it is |
|---|---|
| launcher.py | the launcher |
| submission.py | what one submission handed to Slurm |
| queue.py | what Slurm says of jobs |
| watch.py | looks after the jobs until none is left |
| task.py | what runs on a node |
| outcome.py | what became of a point |
| interrupt.py | when the launcher is asked to stop |
"""
