"""Whether a statement about runs holds, as far as their seeds and splits can tell.

| file | what it is |
|---|---|
| kinds.py | the kinds of statements: what each says, its keys, its test |
| claim.py | a statement in each of its groups, and together |
| printed.py | printed numbers next to ours |
| untrained.py | how many of the points are better than the initial model |
| agreement.py | whether the verdicts of two machines agree |
| group.py | what one group's test is given |
| taken.py | the numbers that a test took, as claims.csv has them |
| comparisons.py | statements that compare |
| optima.py | statements about where the best lies, and about forms |
"""
