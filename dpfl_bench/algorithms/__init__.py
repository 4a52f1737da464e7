"""The algorithms, one file each. `base.py` is the contract that the engine plays by; nothing else
is imported here. CONTRIBUTING.md shows how to add one.
"""
