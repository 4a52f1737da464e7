"""The networks of conf/model, one file a family. `sizes.py` has their shapes and parameters without
torch; `activations.py` has what several share.
"""
