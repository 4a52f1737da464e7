"""From settings to objects. What a YAML file names is called here and nowhere else.

| file | what it is |
|---|---|
| algorithm.py | the algorithm |
| model.py, dimension.py | the model, and the number of its parameters |
| data.py | the data: loaded, prepared, dealt |
| choice.py | which of our own functions a `_target_` names |
"""
