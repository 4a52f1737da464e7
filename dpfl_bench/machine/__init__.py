"""The machine under a run.

| file | what it is |
|---|---|
| device.py | every decision about devices, number formats and threads |
| place.py, ranks.py | one run over several processes and machines; where this one stands |
| signals.py | how a process is asked to stop |
| imports.py | heavy imports in less time; `-cd DIR` as a place to import from |
| colour.py | colour, where a person reads |
| say.py | a line on stderr, above a progress line; a time in words |
| file_lock.py | one process at a time, on every system |
| mapped.py | tensors that processes share, and that may lie in a file |
| sealed.py | files that end with a checksum (checkpoints) |
"""
