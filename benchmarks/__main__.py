"""The commands of the benchmarks that have several options; the others are `benchmarks.NAME`."""

import sys

import tyro

from benchmarks import refresh, speed

if __name__ == "__main__":
    commands = {"speed": speed.main, "refresh": refresh.main}
    try:
        tyro.extras.subcommand_cli_from_dict(commands, prog="python -m benchmarks")
    except ValueError as error:
        print(f"python -m benchmarks: error: {error}", file=sys.stderr)
        sys.exit(2)
