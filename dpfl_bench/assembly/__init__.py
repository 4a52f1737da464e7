"""From settings to objects. Algorithms, models, data sets and partitions that a
YAML file names are built here.

| file | what it is |
|---|---|
| algorithm.py | the algorithm |
| model.py, dimension.py | the model, and the number of its parameters |
| data.py | the data: loaded, prepared, dealt |
| choice.py | which of our own functions a `_target_` names |
"""
