"""How a network's gradients are computed. All backends compute the same numbers, up to rounding.

| engine.backend | a client's gradient | a record's gradient |
|---|---|---|
| loop | autograd, one client at a time | autograd, one record at a time |
| flat | like loop, into flat buffers that stay; channels-last on a CPU | book-keeping |
| vmap | one batched backward over a chunk of clients | the same over a chunk of records |
| opacus | like loop | Opacus' hooks; for comparison, never taken by auto |

Where a layer has no rule, flat computes records' gradients like vmap.
"""
