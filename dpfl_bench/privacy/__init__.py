"""The mathematics of privacy. Nothing here knows settings or data.

| file | what it is |
|---|---|
| released/ | what goes out of a run, and what each observer sees of it |
| accountants/ | one file an accountant; `table.py` has their order |
| divergences/ | the mathematics behind the accountants |
| accounting.py | eps of a view by the accountants of the table |
| calibration.py, answers_on_disk.py | the noise for a budget; answers that are kept on disk |
| bounding.py | clip or normalise to norm C |
| noise_draws.py, noise_grid.py | the noise itself; `privacy.noise=discrete` |
| privunit.py, scalar_dp.py | PrivUnit for a direction, ScalarDP for a norm |
| ledger.py | what really left the doors |
| selection.py | the eps of the best of several runs |
| refusals.py | what privacy/ refuses |
"""
