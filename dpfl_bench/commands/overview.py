"""`dpfl-bench --help`: every verb with an example. `dpfl-bench VERB --help` has a verb's
arguments.
"""

from dpfl_bench.machine.colour import BOLD, GREEN

RULES = ((r"^usage:|^  [a-z]+(?= )", BOLD), (r"^ {14}(dpfl-bench|eval) .*$", GREEN))
TEXT = """\
dpfl-bench: experiments in differentially private federated learning

usage: dpfl-bench VERB [key=value ...] [group=choice ...]     dpfl-bench VERB --help

  run       train and write a run folder
              dpfl-bench run algo=dp_scaffnew eps=2
            a sweep: every combination; every divisor of total_steps; a packaged one
              dpfl-bench run -m algo=dp_fedavg,dp_scaffnew eps=0.5,2,inf local_steps=1,2,5,10
              dpfl-bench run -m total_steps=1000 local_steps=divisors
              dpfl-bench run -m +experiment=breast_cancer
            on all cores, on a cluster; the jobs and how long they take
              dpfl-bench run -m hydra/launcher=cores|slurm ...
              dpfl-bench run -m --dry-run ...
            show the settings
              dpfl-bench run --cfg job algo=dp_fedavg
  replay    a run folder's question again, from the folder alone; whether every number is the same
              dpfl-bench replay outputs/runs/ID [--check] [--to OUTPUTS]
  plan      no training: noise, eps in every view, rounds that eps allows, optimal steps in theory
              dpfl-bench plan algo=dp_scaffnew eps=2 [--json] [--views]
  audit     lower bounds on eps of the code path that ran, tests of what its accountant assumes
              dpfl-bench audit outputs/runs/ID [--confidence .95] [--canaries N] [--json]
  status    what is done, running, failed, missing, and the command that finishes it
              dpfl-bench status [outputs] [--json]
  collect   run folders -> results.csv, the optimal-(E,T) table, U-curves
              dpfl-bench collect outputs/runs [--to DIR] [--by test_loss] [--tuning-eps] [--json]
  reproduce the tables and figures of papers: the missing runs, the picture, which claims hold
              dpfl-bench reproduce normalized/fig2 scale=cpu [reading=exact] [--dry-run] [--check]
  data      which data sets are on this machine; get and check their files; who gets what
              dpfl-bench data list [--json]
              dpfl-bench data fetch|verify mnist [dataset.root=DIR]
              dpfl-bench data show dataset=mnist partition=dirichlet clients=20
  list      algorithms, data sets, models, partitions, privacy models, experiments   [--json]
              dpfl-bench list papers
  new       an algorithm, a data set or a model of your own: a module, its YAML file and a test
              dpfl-bench new algorithm fedprox
  completion  what makes Tab complete verbs, keys and choices
              eval "$(dpfl-bench completion bash)"
  version   of dpfl-bench; --verbose: of every optional part, too

-cd DIR adds a folder with your own algo/, dataset/, model/ ... YAML files; -cn NAME takes another
primary config. A `_target_` in such a file is code: run, data fetch and data verify call it. plan
imports an algorithm's module and calls nothing.
JSON goes to stdout, everything else to stderr. The last line that `run` prints is the run folder.
A sweep that is run again leaves alone what is done, resumes what was cut off and tries again what
failed.
Exit codes: 0 done; 1 failed, diverged or another process works on it (--check: another number;
audit: violated; data verify: a subset, or unverified); 2 bad settings or data, or computed by other
code or data (--force, --accept); 130 Ctrl-C, 143 SIGTERM, 140 SIGUSR2.
"""
