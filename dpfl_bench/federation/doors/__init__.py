"""The two doors: the only places where clipping, noise and the ledger exist. `privacy/bounding.py`
computes the factor that brings a norm to C; at record level the problem multiplies each gradient by
its factor (`problems/problem.py`, `clipped_gradient`).

| file | what it does |
|---|---|
| `send.py` | the settings of the send door (client level) |
| `send_passage.py` | clips each client's update to norm C, sums the messages, records the release |
| `send_noise.py` | adds the noise of the send door, to single messages or to their sum |
| `gradient.py` | record level: clips each record's gradient to norm C, noise to each lot's sum |
| `quantile.py` | adaptive clipping: C of the next round |
| `formats.py` | the number format of the noise |

At client level gradients pass freely, and the send door bounds, noises and records what a client
sends. At record level the gradient door bounds, noises and records each local gradient, and what a
client sends is post-processing of those. `eps=inf` opens both doors.

An update or a gradient that comes to a closed door and is not finite counts as zero ("blanked"),
before anything is summed. Otherwise the data of one client or one record could decide whether the
model overflows, and so how the run ends, which no eps covers.
"""
