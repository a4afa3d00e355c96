"""`python -m benchmarks`: run `icl-krr bench`."""

import sys

from icl_krr.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
