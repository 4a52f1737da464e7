"""What a run leaks at least, on its own code path: bounds from below, and tests of what the
accountant assumes.

| file | what it is |
|---|---|
| whole_audit.py | all parts of one audit, in order |
| claim.py | what the run claims, from the guarantee's record alone |
| agreement.py | whether the record agrees with itself |
| finding.py | one part's answer, and the verdict over all |
| statistics.py | bounds and tests; numbers alone |
| watched.py | the run's player, observed at its doors; what its clients offer can be changed |
| worlds.py | neighbouring federations |
| replay.py | how far neighbours move a release: against the declared sensitivity |
| plays.py | rounds of canaries: what is released of them, with many seeds |
| scalars.py | the noise of the further sums: squared norms, bits |
| residuals.py | the noise: its scale, its shape, its independence |
| canaries.py | mean shift and black box |
| evidence.py | composition: the eps that the evidence supports |
| cohorts.py | who was drawn |
| watched_lots.py | record level: the gradient door, observed; which records a lot holds |
| record_worlds.py | record level: neighbouring federations |
| record_replay.py | record level: how far neighbours move a lot's sum |
| record_plays.py | record level: lots of canaries |
| lots.py | record level: the lots that were drawn |
| privunit_messages.py | PrivUnit: messages of two updates; the law that the record claims |
| privunit_parts.py | PrivUnit: counts, likelihood ratio, composition |
| workers.py | the run's worker processes |
| audited_run.py | the run that is audited: its folder or its settings |
"""
