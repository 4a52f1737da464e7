"""`python -m dpfl_bench VERB ...` is `dpfl-bench VERB ...`, for a shell that does not find it."""

from dpfl_bench.cli import command

if __name__ == "__main__":  # a worker process that is spawned imports this file, too
    command()
