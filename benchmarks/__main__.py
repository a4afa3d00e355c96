"""The commands of the benchmarks that have several options; the others are `benchmarks.NAME`."""

import tyro

from benchmarks import refresh, speed

if __name__ == "__main__":
    commands = {"speed": speed.main, "refresh": refresh.main}
    tyro.extras.subcommand_cli_from_dict(commands, prog="python -m benchmarks")
