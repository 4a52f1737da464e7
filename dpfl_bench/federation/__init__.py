"""One round, and who holds what.

| file | what it is |
|---|---|
| schedule.py | who takes part when, drawn before training |
| round_player.py | one round: local work, doors, server step, memories |
| local.py | the gradients and steps of a client |
| doors/ | where C and the noise are applied |
| server_step.py, state.py | the server's step; what crosses rounds |
| crew.py, alone.py, workers.py, ranks.py | who computes a round |
| share.py, messages.py | what falls to a rank; what processes tell each other |
| clients.py | all clients' records as one store |
| sampling.py, lot_size.py | lots: which records a step sees, and how many |
| partition.py, uneven.py, preconditions.py | how records are dealt to clients |
| dealing.py, parts.py | what a partition says of itself; parts as arrays |
| holders.py | who holds which record, for record-level accounting |
| evaluation.py, diagnostics.py | losses and scores; what a simulation may look at |
| dissimilarity.py | how different the clients' gradients are, on demand |
"""
