"""One run, from settings to its folder.

| file | what it is |
|---|---|
| run.py, book.py | the whole, whatever interrupts it; what is written meanwhile |
| alike.py | what the ranks of a run must have in common |
| job.py | everything that a run is made of |
| build_player.py | the round player of a seed |
| engine.py | backend, chunk of clients, number of workers |
| train.py, resume.py | the loop over rounds; checkpoints |
| pulse.py | where the run stands, for whoever waits for it |
| scored.py | which records are scored |
| measure.py, measured.py | what an evaluated round measures, always and on demand |
| exact_optimum.py, theory_of_run.py | the exact optimum; what the theorems say of the data |
| report.py, privacy_record.py | result.json and privacy.json |
| plan.py, plan_text.py | what a run would spend, without running it; the same for a person |
"""
