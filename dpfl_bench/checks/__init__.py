"""How bad input is refused: in one line, before any data load.

| file | what it is |
|---|---|
| errors.py | `ConfigError`: the one-line error of a user |
| ranges.py | ranges of values, and the check of one value |
| nearest.py | what a mistyped key or choice was meant to be |
| yaml_file.py | a user's YAML file as plain data |
| signatures.py | what a function says of its parameters: types, ranges, counts |
"""
