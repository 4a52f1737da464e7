"""`dpfl-bench plan`: its arguments. `planning` computes the answer."""

from __future__ import annotations

from dpfl_bench.commands import arguments

EXAMPLES = (
    "plan algo=dp_scaffnew eps=2",
    "plan algo=dp_fedavg privacy=central sampled_clients=9 --views",
    "plan dataset=femnist model=cnn records=200 --json",
)


def command(words: list[str]) -> int:
    does = "Without training or data: the noise, eps in every view, the rounds that eps allows, theory."
    parser = arguments.parser("plan", does, EXAMPLES, "docs/privacy.md (what every number means)")
    arguments.add_settings(parser)
    arguments.add_json(parser)
    parser.add_argument(
        "--views", action="store_true", help="every observer by every accountant, and eps over the rounds"
    )
    flags = parser.parse_intermixed_args(words)
    from dpfl_bench.commands import planning
    from dpfl_bench.config import compose
    from dpfl_bench.config.validate import settings

    composed = compose.composed(flags.overrides, flags.config_dir, flags.config_name)
    answer = planning.plan(settings(composed), detailed=flags.json or flags.views)
    arguments.answer(answer, flags.json, planning.text)
    return 0
