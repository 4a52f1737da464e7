"""What a run releases, and what each observer gets to see of it: the accountants' only input.

| file | what it is |
|---|---|
| clients.py | client level: `Releases` |
| records.py | record level: `RecordReleases` |
| views.py | what the server and a third party see of them |
| composition.py | releases of one mechanism, and their algebra |
"""
