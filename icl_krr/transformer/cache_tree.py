"""The tree of a cache: what `print(cache)` shows."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from ..readable import LINES, WIDTH, drawn


def text(tree: dict[str, Any]) -> str:
    """A tree {name: array or tree}, with as many of its levels as fit on one screen."""
    shown = rendered(tree, 1)
    for depth in (2, 3):
        deeper = rendered(tree, depth)
        if len(deeper) > LINES:
            break
        shown = deeper
    return "\n".join(shown)


def rendered(tree: dict[str, Any], depth: int) -> list[str]:
    root = Tree("Cache")
    grow(root, tree, depth)
    out = StringIO()
    Console(file=out, width=WIDTH, color_system=None).print(root)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def grow(node: Tree, tree: dict[str, Any], depth: int) -> None:
    """Add the branches of a tree; what is more than `depth` levels below is only named."""
    for name, value in tree.items():
        if not isinstance(value, dict):
            node.add(escape(f"{name}: {drawn(value, 0)}"))
        elif depth > 1:
            grow(node.add(escape(name)), value, depth - 1)
        else:
            node.add(escape(f"{name}: {', '.join(value)}"))
