"""What is learnt: a model as one vector, with its losses and gradients.

| file | what it is |
|---|---|
| problem.py | the contract: gradients of many clients at once, losses, scores |
| linear.py, linear_size.py | logistic regression and least squares, as YAML files name them |
| linear_problem.py | their gradients in closed form |
| module.py, network.py | any torch network, as a problem and as a function of a vector |
| backends/ | how the gradients of a network are computed |
| bookkeeping/ | gradients of single records, by a rule for each kind of layer |
| models/ | the networks of conf/model |
| tasks.py | losses and scores by task |
| products.py | batched products of small matrices |
| optimum.py | the exact optimum of a convex problem |
| theory.py | Theorem 1 and Corollary 1 of `balancing`, corrected |
"""
