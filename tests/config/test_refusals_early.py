"""What is refused before any data loads: one line with the key and the remedy, exit code 2, no
traceback, no folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command import call
from helpers.refusals import check, table

from dpfl_bench.experiment import job

pytestmark = pytest.mark.one_in(6)

# overrides | what the line has to name | a word of the remedy
REFUSED = """
foo=1                                     | foo                | --cfg job
+foo=1                                    | foo=1              | unknown key (dpfl-bench run --cfg job
++foo=1                                   | foo=1              | unknown key
algo.foo=1                                | algo.foo           | --cfg job
+algo.foo=1                               | algo.foo=1         | coins
+dataset.foo=1                            | dataset.foo=1      | standardise
+model.foo=1                              | model.foo=1        | l2
+partition.foo=1                          | partition.foo=1    | shards_per_client
+privacy.foo=1                            | privacy.foo=1      | clip
privacy.foo=1                             | privacy.foo        | --cfg job
+engine.foo=1                             | engine.foo=1       | chunk
+theory.foo=1                             | theory.foo=1       | psi0
++model.a.b=1                             | model.a            | unknown key
+privacy.clip.x=1                         | privacy.clip       | a number
~eps                                      | eps                | expected a value
~privacy.clip                             | privacy.clip       | expected a value
~model.l2                                 | model.l2           | expected a value
engine=3                                  | engine=3           | engine.backend
eps=abc                                   | eps=abc            | a number
eps=null                                  | eps=null           | a number
eps=true                                  | eps=True           | a number
eps=[1]                                   | eps=[1]            | a number
eps=nan                                   | eps=nan            | eps=inf
delta=abc                                 | delta=abc          | a number
rounds=1.5                                | rounds=1.5         | a whole number
local_steps=1.5                           | local_steps=1.5    | a whole number
total_steps=true                          | total_steps=True   | a whole number
repeats=true                              | repeats=True       | a whole number
repeats=0                                 | repeats=0          | at least 1
seed=1.5                                  | seed=1.5           | a whole number
seed=-1                                   | seed=-1            | >= 0
lr=fast                                   | lr=fast            | a number
lr=0                                      | lr=0               | > 0
lr=nan                                    | lr=nan             | > 0
lr_decay=2                                | lr_decay=2         | lr_decay <= 1
local_momentum=1                          | local_momentum=1   | < 1
server_momentum=-.1                       | server_momentum=-0.1 | >= 0
server_lr=0                               | server_lr=0        | > 0
weight_decay=-1                           | weight_decay=-1    | >= 0
eval_every=0                              | eval_every=0       | at least 1
checkpoint_every=0                        | checkpoint_every=0 | at least 1
measure=client                            | measure=client     | like [client]
measure=[norms]                           | measure=['norms']  | client, iterates
measure=null                              | measure=None       | a list of client
measure=[client] measured_client=90       | measured_client=90 | one of 0..89
measured_client=-1                        | measured_client=-1 | the first client is 0
engine.chunk=0                            | engine.chunk=0     | at least 1
plot=1                                    | plot=1             | true or false
outputs=3                                 | outputs=3          | a word
dtype=float16                             | dtype=float16      | float64
device=quantum                            | device=quantum     | auto or cpu
model.l2=x                                | model.l2=x         | a number
model.l2=-1                               | model.l2=-1        | >= 0
privacy.noise_multiplier=50                | privacy.noise_multiplier=50 | say privacy.calibration=fixed
privacy.v=8                               | privacy.v=8        | say privacy.calibration=formula
model.bias=7                              | model.bias=7       | true or false
dataset=mnist model=mlp model.hidden=3    | model.hidden=3     | a list
algo.coins=1                              | algo.coins=1       | true or false
dataset.standardise=1                     | dataset.standardise=1 | public or data or none
dataset.standardise=true                  | dataset.standardise=True | public or data or none
dataset.standardise=null                  | dataset.standardise=None | public or data or none
partition.shards_per_client=1.5           | partition.shards_per_client=1.5 | a whole number
dataset=mnist model=mlp model.hidden=3    | model.hidden=3     | a list
eps=-1                                    | eps=-1             | eps > 0 (use eps=inf
eps=0                                     | eps=0              | eps=inf
delta=1                                   | delta=1            | delta < 1
delta=2                                   | delta=2            | delta < 1
delta=0                                   | delta=0            | 0 < delta
delta=-1e-5                               | delta=-1e-05       | 0 < delta
privacy.clip=0                            | privacy.clip=0     | a number >= 1e-12
privacy.clip=-1                           | privacy.clip=-1    | a number >= 1e-12
privacy.clip=9e-13                        | privacy.clip=9e-13 | a number >= 1e-12
privacy.clip=null                         | privacy.clip=null  | a number
privacy.clip=inf                          | privacy.clip=inf   | without a bound
privacy.clip=nan                          | privacy.clip=nan   | without a bound
privacy.bound=none                        | privacy.bound=none | clip or normalise
privacy.bound=null                        | privacy.bound      | clip or normalise
clients=0                                 | clients=0          | at least 1
sampled_clients=0                         | sampled_clients=0  | at least 1
sampled_clients=91                        | sampled_clients=91 | at most clients=90
clients=10 sampled_clients=11             | sampled_clients=11 | at most clients=10
batch_size=0                              | batch_size=0       | at least 1
batch_size=6                              | batch_size=6       | lower it
dataset=mnist clients=100 batch_size=601  | batch_size=601     | 600
sample_rate=0                             | sample_rate=0      | 0 < sample_rate
sample_rate=1.5                           | sample_rate=1.5    | sample_rate <= 1
batch_size=2 sample_rate=.5               | sample_rate=0.5    | batch_size=2
dataset=mnist model=cnn model.norm=batch eps=1 | BatchNorm     | model.norm=group
dataset=mnist model=linreg                | model=linreg       | model=logreg
model=cnn                                 | model=cnn          | model=mlp
dataset=quadratics model=logreg           | model=logreg       | model=linreg
algo=fedavg eps=1                         | eps=1              | algo=dp_fedavg
algo=scaffnew eps=1                       | eps=1              | algo=dp_scaffnew
privacy.calibration=fixed                 | privacy.noise_multiplier | a number > 0
privacy.calibration=formula               | privacy.v          | a number > 0
privacy.calibration=magic                 | privacy.calibration=magic | exact or formula or fixed
privacy.accountant=magic                  | privacy.accountant=magic | rdp
algo=dp_scaffold_warm algo.warm_rounds=x   | algo.warm_rounds=x | a whole number
algo=dp_scaffold_warm algo.warm_rounds=1.5 | algo.warm_rounds=1.5 | a whole number
algo=fedexp algo.naive=true privacy.bound_without_noise=true | algo.naive=true | privacy=local
algo=fedavg privacy=record privacy.quantile=.5 privacy.bound_without_noise=true | privacy.quantile=0.5
    | leave it out
algo=fedavg privacy=record privacy.clip=median sample_rate=.05 privacy.bound_without_noise=true
    | privacy.clip=median | batch_size
privacy=record algo=dp_fedexp algo.naive=true privacy.trust=secagg | algo.naive=true | privacy=local
privacy=local privacy.mechanism=privunit privacy.quantile=.5 | privacy.quantile=0.5 | mechanism=gaussian
algo=dp_fedavg privacy=central privacy.observer=server stop_at_eps=5 | privacy.observer=server | third_party
dataset=reddit model=logreg               | model=logreg | model=lstm
dataset=ixi model=logreg                  | model=logreg | model=unet3d
privacy=record algo=dp_normfedavg         | privacy.bound=normalise | say privacy.bound=clip
privacy=record privacy.mechanism=privunit | privacy.mechanism=privunit | privacy.unit=client
privacy=record privacy.memory=own_update  | privacy.memory=own_update | leave it out
privacy=record privacy.quantile=.5        | privacy.quantile=0.5 | leave it out
privacy=record privacy.colluding=2        | privacy.colluding=2 | say privacy.colluding=0
privacy=record privacy.trust=central      | privacy.trust=central | privacy=record
privacy=record sample_rate=.1             | privacy.neighbours=replace_one | add_remove_one
privacy=record batch_size=2 privacy.neighbours=add_remove_one | privacy.neighbours=add_remove_one
    | sample_rate
privacy=record algo=dp_fedexp             | privacy.unit=record | algo.naive=true
privacy=record privacy.clip=median privacy.neighbours=add_remove_one sample_rate=.1 | privacy.clip=median
    | batch_size
privacy=record privacy.calibration=formula privacy.v=1 | calibration=formula | or privacy.calibration=fixed
privacy=record privacy.accountant=paper batch_size=2 | accountant=paper | third_party
eps=1e-300                                    | eps=1e-300         | eps=inf
eps=1e300                                     | eps=1e+300         | eps=inf
delta=.999999999999                           | delta=0.999999999999 | at most 0.1
delta=.2                                      | delta=0.2          | below 1 / clients
delta=1e-310                                  | delta=1e-310       | below 1 / clients
seed=9223372036854775808                      | seed=9223372036854775808 | < 2^62
dataset.seed=-1                               | dataset.seed=-1    | >= 0
dataset.seed=9223372036854775808              | dataset.seed=9223372036854775808 | < 2^62
partition.seed=-1                             | partition.seed=-1  | >= 0
partition.seed=99999999999999999999999        | partition.seed=99999999999999999999999 | < 2^62
model.l2=nan                                  | model.l2=nan       | >= 0
model.l2=inf                                  | model.l2=inf       | >= 0
model.l2=1e300                                | model.l2=1e+300    | 1e+250
lr=1e300                                      | lr=1e+300          | 1e+250
lr_decay=1e-300                               | lr_decay=1e-300    | raise lr_decay
lr_decay=.1 rounds=60                         | lr_decay=0.1       | raise lr_decay
engine.memory=1e300                           | engine.memory=1e+300 | GB
device=meta                                   | device=meta        | auto or cpu
dataset=mnist dataset.name=x                  | dataset.name=x     | FashionMNIST
dataset=mnist dataset.root='~nouser/x'        | dataset.root=~nouser/x | in full
dataset=mnist dataset.root=3                  | dataset.root=3     | a word
algo._target_=os.system                       | _target_=os.system | of your own
privacy.calibration=fixed privacy.noise_multiplier=1e-300 | privacy.noise_multiplier=1e-300 | > 0
privacy.calibration=fixed privacy.noise_multiplier=1e300 | privacy.noise_multiplier=1e+300 | 1e+250
privacy.clip=1e300                            | privacy.clip=1e+300 | 1e+30
rounds=1000000000000                          | rounds=1000000000000 | at least 1, 1 to 1e+09
rounds=100000000 local_steps=1                | rounds=100000000   | 1 to 1e+06
total_steps=1000000000039 local_steps=7       | total_steps=1000000000039 | 1 to 1e+09
total_steps=999999937 local_steps=7           | local_steps=7
    | the nearest are local_steps=1 or local_steps=999999937
repeats=1000000                               | repeats=1000000    | 1 to 10000
algo=dp_fedavg sampled_clients=9 rounds=200000 | rounds=200000   | at most 100000 rounds
repeats=10000 rounds=10000                    | repeats=10000      | rounds of all seeds together
dataset.classes=1                             | dataset.classes=1  | at least 2
dataset.shape=[a]                             | dataset.shape      | whole numbers
dataset.shape=[]                              | dataset.shape=[]   | whole numbers
clients=10000000000                           | clients=10000000000 | 1 to 1e+07
dataset=mnist dataset.keep=60001          | dataset.keep=60001 | at most 60000
dataset=mnist dataset.keep=0              | dataset.keep=0     | at least 1
dataset=mnist dataset.keep=100 clients=101 partition=one_label | clients=101 | use fewer clients
privacy.client_share=.5                       | privacy.client_share=0.5 | privacy.accountant=paper
privacy=record privacy.accountant=paper batch_size=2 privacy.client_share=.5 | privacy.client_share=0.5
    | sampled clients
privacy=record privacy.accountant=paper batch_size=2 sampled_clients=3 privacy.client_share=.7
    | privacy.client_share=0.7 | say the two alike
privacy=record privacy.accountant=paper batch_size=2 privacy.client_share=1.5 | privacy.client_share=1.5
    | <= 1
privacy=record privacy.accountant=exact batch_size=2 | accountant=exact | pld
privacy.mechanism=privunit algo=dp_fedavg | privacy.trust=secagg | privacy=local
privacy=central privacy.mechanism=privunit algo=dp_fedavg | privacy.trust=central | privacy=local
privacy=local privacy.mechanism=privunit privacy.calibration=fixed | privacy.eps0=null | a number > 0
privacy=local privacy.mechanism=privunit privacy.noise_multiplier=2 | privacy.noise_multiplier=2
    | leave it out
privacy=local privacy.eps1=2              | privacy.eps1=2 | leave it out
privacy=local privacy.mechanism=privunit algo=dp_fedavg dataset=libsvm dataset.path=x | dataset.shape=null
    | dataset.classes
privacy=local privacy.colluding=1         | privacy.colluding=1 | leave it out
privacy=central privacy.colluding=1 algo=dp_fedavg | privacy.colluding=1 | leave it out
privacy.colluding=90                      | privacy.colluding=90 | fewer than a cohort's 90
privacy.colluding=-1                      | privacy.colluding=-1 | >= 0
privacy.clip=mean                         | privacy.clip=mean | a number
privacy.clip=median privacy.quantile=.5   | privacy.quantile=0.5 | the number it starts from
privacy.quantile=1                        | privacy.quantile=1 | < 1
privacy.norm_noise=2                      | privacy.norm_noise=2 | leave it out
privacy=local algo=dp_fedexp privacy.norm_noise=2 | privacy.norm_noise=2 | leave it out
algo=dp_fedexp algo.naive=true            | algo.naive=true | privacy=local
algo=dp_scaffold client_sampling=poisson sampled_clients=9 | client_sampling=poisson | client_sampling=fixed
algo=dp_scaffold privacy=central          | privacy.trust=central | privacy=secagg
algo=dp_fedexp_scaffold privacy=central   | privacy.trust=central | privacy.memory=own_update
algo=dp_scaffold_warm rounds=1            | algo.warm_rounds=1 | the model never moves
algo=dp_scaffold_warm sampled_clients=9   | algo.warm_rounds=40 | fewer than rounds=10
algo=dp_scaffold algo.warm_rounds=-1      | algo.warm_rounds=-1 | at least 0
average_last=0                            | average_last=0 | at least 1
stop_at_eps=-1                            | stop_at_eps=-1 | > 0
stop_at_eps=.01                           | stop_at_eps=0.01 | raise the noise
local_epochs=2 local_steps=3              | local_steps=3 | one of the two
local_epochs=0                            | local_epochs=0 | at least 1
total_epochs=2 batch_size=2 dataset=synthetic_logistic | total_epochs=2 | records=N
privacy.unit=document                     | privacy.unit=document | client
privacy.trust=nobody                      | privacy.trust=nobody | secagg
rounds=5 local_steps=2 total_steps=10     | rounds=5, local_steps=2, total_steps=10 | leave one out
rounds=0                                  | rounds=0           | at least 1
default_total_steps=0                     | total_steps=0      | at least 1
local_steps=7                             | local_steps=7      | nearest are local_steps=4 or local_steps=5
rounds=7 total_steps=100                  | rounds=7           | the nearest are rounds=4 or rounds=5
local_steps=150 total_steps=100           | local_steps=150    | =50 or local_steps=100
privacy=central                           | privacy.trust=central | privacy=secagg
privacy.trust=central                     | privacy.trust=central | privacy=secagg
sampled_clients=9 client_sampling=poisson | client_sampling=poisson | client_sampling=fixed
algo=dp_fedavg privacy=central privacy.observer=server | privacy.observer=server | third_party
algo=dp_fedavg privacy=central sampled_clients=9 privacy.neighbours=add_remove_one | add_remove_one
    | neighbours=replace_one
algo=dp_fedavg sampled_clients=9 privacy.accountant=frob | privacy.accountant=frob | auto
algo=nope                                 | algo=nope          | dp_scaffnew
dataset=nope                              | dataset=nope       | mushrooms
model=nope                                | model=nope         | logreg
partition=nope                            | partition=nope     | dirichlet
privacy=nope                              | privacy=nope       | secagg
algo=3                                    | algo=3             | dpfl-bench list
algo=null                                 | algo=null          | dpfl-bench list
eps                                       | eps                | KEY=VALUE
eps==2                                    | eps==2             | quote
eps=1,2                                   | eps=1,2            | run -m
eps=${nope}                               | nope               | --cfg job
algo._target_=nope.Nope                   | _target_=nope.Nope | package.module.Name
model._target_=dpfl_bench.problems.Nope   | _target_=dpfl_bench.problems.Nope | package.module.Name
-cd nowhere                               | -cd nowhere        | correct the path
-cn nope                                  | nope               | -cd DIR
"""


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise AssertionError("data were loaded")

    monkeypatch.setattr(job, "load_data", load)


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(("overrides", "key", "word"), table(REFUSED))
def test_run_refuses_before_it_loads_data(overrides: list[str], key: str, word: str, tmp_path: Path) -> None:
    check(call("run", *overrides), key, word)
    assert not list(tmp_path.iterdir())
