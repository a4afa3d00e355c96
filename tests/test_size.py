"""How much there is to carry: one number, which may fall and never rises."""

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE_LINES = 51874
"""Of package, benchmarks and tests, without blank lines, comments and docstrings.

`python -m benchmarks refresh` lowers it to the count of today. Nobody raises it: what a change adds
takes something away.
"""


def code_lines(source):
    """The lines with code, without those that hold nothing but a docstring or comment."""
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    used = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent and token.type != tokenize.ENDMARKER:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            used.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(used)


def total():
    return sum(
        code_lines(path.read_text())
        for folder in ("icl_krr", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*.py")
    )


def test_the_counter_counts_code_alone():
    docstring = '    """Say it.\n\n    Twice.\n    """\n\n    # why\n'
    assert code_lines(f"def f(x):\n{docstring}    return (\n        x\n    )\n") == 4


def test_the_code_has_not_grown():
    assert total() <= CODE_LINES
