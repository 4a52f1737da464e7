"""The mathematics behind the accountants.

| file | what it is |
|---|---|
| gaussian.py | the Gaussian mechanism without sampling, in closed form |
| sampled.py | sampled Gaussian releases, by privacy loss distributions |
| participation.py | rounds in which a client takes part by chance |
| profiles.py | delta at each eps of one sampled release |
| distinguishing.py | the power of the best test of two neighbours |
| losses.py | the epsilon of a discrete distribution of privacy losses |
| renyi.py | Rényi divergences, and the epsilon that they give |
| pure.py | releases that are eps_0-DP each |
| dpscaffold.py | the accountant of `dpscaffold`, which is no guarantee |
"""
