"""Sites in a model where an intervention can act: heads, units, slots, tokens of a role."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product
from typing import NamedTuple

from ..._core import checks
from ...catalogue import SITES
from ...residual import ROLES
from ...transformer import Block, Transformer
from ...transformer._weights import check_model, width

STREAM_POINTS = ("resid_pre", "resid_mid", "resid_post")


class Site(NamedTuple):
    """A set of activations: channels of tokens at one or several points of some blocks.

    Attributes:
        kind: "head", "unit", "slot" or "role".
        name: where the site is, such as "step.3.heads.0.rr_next".
        slot: slot that the site writes to or belongs to; "all" for a role.
        points: points of a block, such as "heads.0.mixed" (see `transformer.hook_points`).
        position: index of the block among the blocks of the prologue and of one step; None: all.
        step: index of the solver step; None: all.
        channels: channels (low, high), high excluded; None: all.
        roles: roles of the tokens.
    """

    kind: str
    name: str
    slot: str
    points: tuple[str, ...]
    position: int | None = None
    step: int | None = None
    channels: tuple[int, int] | None = None
    roles: tuple[str, ...] = ROLES


class BlockPlace(NamedTuple):
    """A block of the prologue or of a step. `step` None means all steps."""

    name: str
    block: Block
    position: int
    step: int | None


def sites(
    model: Transformer,
    kinds: tuple[str, ...] = ("head", "slot"),
    *,
    each_step: bool = False,
    each_unit: bool = False,
) -> list[Site]:
    """List the sites of a model, in the order of the forward pass.

    - "head": a head. If a group of heads has only one head, this head has one site for each slot
      that it writes to.
    - "unit": a group of MLP units, or a single unit with `each_unit`.
    - "slot": a slot of the stream, before, inside and after every block. A model without slots has
      one such site, its stream.
    - "role": the whole stream at the tokens of one role.

    Args:
        kinds: kinds of sites to list.
        each_step: False lists sites that cover all steps. True lists separate sites for each
            block. The site of a slot or role is then the stream after that block.

    >>> import icl_krr as ik
    >>> model = ik.constructions.conjugate_gradient(ik.Linear(), num_features=1, ridge=0.1, steps=2)
    >>> [site.name for site in sites(model, ("head",))][-2:]
    ['step.3.heads.0.rr_next', 'step.4.heads.0.p']
    >>> [site.name for site in sites(model, ("head",), each_step=True)][-1]
    'blocks.10.heads.0.p'
    """
    check_model(model)
    checks.names("kinds", kinds)
    checks.flag("each_step", each_step)
    checks.flag("each_unit", each_unit)
    for kind in kinds:
        checks.choice("kind", kind, SITES)
    all_sites = []
    for place in _block_places(model, each_step):
        all_sites += [*_head_sites(place), *_unit_sites(place, each_unit)]
        if each_step:
            all_sites += _slot_and_role_sites(model, place)
    if not each_step:
        all_sites += _slot_and_role_sites(model, None)
    return [site for site in all_sites if site.kind in kinds]


def check_sites(model: Transformer, sites_to_check: Sequence[Site]) -> None:
    checks.instance("sites", sites_to_check, (list, tuple), "a list of sites")
    if not sites_to_check:
        raise ValueError("sites must not be empty; icl_krr.probes.sites(model) lists them")
    model_places = {
        place_of(site)
        for step, unit in product((False, True), repeat=2)
        for site in sites(model, SITES, each_step=step, each_unit=unit)
    }
    for site in sites_to_check:
        if not isinstance(site, Site):
            raise TypeError(
                f"sites must hold icl_krr.probes.Site objects, got {site!r}; "
                "icl_krr.probes.sites(model) lists them"
            )
        if place_of(site) not in model_places:
            raise ValueError(
                f"sites must belong to this model, got {site.name!r}; "
                "icl_krr.probes.sites(model) lists them"
            )


def place_of(site: Site) -> tuple:
    return site.points, site.position, site.step, site.channels


def _block_places(model: Transformer, each_step: bool) -> Iterator[BlockPlace]:
    first, per_step = len(model.weights.prologue), model.blocks_per_step
    for i, block in enumerate(model.weights.prologue):
        yield BlockPlace(f"blocks.{i}" if each_step else f"prologue.{i}", block, i, None)
    for step in range(model.steps) if each_step else [None]:
        for b, block in enumerate(model.weights.steps):
            name = f"step.{b}" if step is None else f"blocks.{first + step * per_step + b}"
            yield BlockPlace(name, block, first + b, step)


def _head_sites(place: BlockPlace) -> Iterator[Site]:
    for j, group in enumerate(place.block.attention):
        point, at = f"heads.{j}", (place.position, place.step)
        widths = [write.value.width // group.heads for write in group.writes]
        name = f"{place.name}.{point}"
        if group.heads == 1:
            edges = pairwise(accumulate(widths, initial=0))
            for write, edge in zip(group.writes, edges, strict=True):
                yield Site("head", f"{name}.{write.to}", write.to, (f"{point}.mixed",), *at, edge)
            continue
        d, slots = sum(widths), ", ".join(write.to for write in group.writes)
        for h in range(group.heads):
            edge = (h * d, (h + 1) * d)
            yield Site("head", f"{name}[{h}]", slots, (f"{point}.mixed",), *at, edge)


def _unit_sites(place: BlockPlace, each: bool) -> Iterator[Site]:
    for j, unit in enumerate(place.block.mlp):
        point, at = f"units.{j}", (place.position, place.step)
        name, points = f"{place.name}.{point}", (f"{point}.hidden",)
        if not each:
            yield Site("unit", f"{name}.{unit.to}", unit.to, points, *at)
            continue
        for h in range(width(unit)):
            yield Site("unit", f"{name}[{h}]", unit.to, points, *at, (h, h + 1))


def _slot_and_role_sites(model: Transformer, place: BlockPlace | None) -> Iterator[Site]:
    """Sites of slots and of roles: after one block, or at all points of all blocks."""
    layout, merged = model.layout, set(model.weights.embedding) == {"stream"}
    at = (None, None) if place is None else (place.position, place.step)
    points = STREAM_POINTS if place is None else STREAM_POINTS[-1:]
    prefix = "" if place is None else f"{place.name}.resid_post."
    for slot in layout.names:
        stored, edge = slot, None
        if merged:
            channels = layout.channels(slot)
            stored, edge = "stream", (channels.start, channels.stop)
        slot_points = tuple(f"{point}.{stored}" for point in points)
        yield Site("slot", f"{prefix}{slot}", slot, slot_points, *at, edge)
    whole = tuple(f"{point}.{slot}" for point in points for slot in model.weights.embedding)
    for role in ROLES:
        yield Site("role", f"{prefix}{role} tokens", "all", whole, *at, None, (role,))
