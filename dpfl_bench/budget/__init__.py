"""What a run releases and what that costs: settings and schedules in, noise and eps out. No data.

| file | what it is |
|---|---|
| budget.py | the whole, thin; the other files are its parts |
| schedules.py | one schedule a seed |
| foreseen_holders.py | who will hold which record, before data load |
| released.py | what the accountants are asked about |
| noise.py | the noise multiplier: solved for, by formula, or as given |
| spent.py | eps by observer and accountant, and over the rounds |
| each_client.py | eps of each client, by how often it was drawn |
| guarantee.py | the guarantee of a run, as one record |
| meaning.py | what the eps means, in one sentence |
| before_data.py | what is refused before data load, by one code for `plan`, runs and sweeps |
| refusals.py | what shows only when noise and releases are known |
| notes.py | what a user is told of a budget that is allowed, and unusual |
| stop.py | a `stop_at_eps` that a dry run can refuse |
| theory.py | what Theorem 1 and Corollary 1 expect of the budget |
"""
