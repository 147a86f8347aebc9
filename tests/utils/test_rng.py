"""Random numbers of items: the published generator, and draws that do not depend on who shares the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tellapart.captioners.sampling import next_token
from tellapart.models.decoding import Decoding
from tellapart.utils.rng import ItemSeeds, philox

ALL = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ALL, ALL, ALL, ALL), (ALL, ALL), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (*PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_gives_the_authors_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    """kat_vectors of Random123, philox4x32 with 10 rounds."""
    found = philox(np.array([key], np.uint64), np.array([counter], np.uint64))
    assert found.tolist() == [list(words)]


def test_a_row_belongs_to_its_item_and_sample() -> None:
    seeds = ItemSeeds(("a", "b", "c", "ä\udce4"), seed=3, step=7)
    whole = seeds.uniform("tokens", 9, samples=3).unflatten(0, (4, 3))
    assert whole.dtype == torch.float64 and bool(((whole >= 0) & (whole < 1)).all())
    turned = ItemSeeds(seeds.ids[::-1], seed=3, step=7).uniform("tokens", 9, samples=3).unflatten(0, (4, 3))
    assert torch.equal(turned.flip(0), whole)
    assert torch.equal(seeds[1:2].uniform("tokens", 4, samples=2), whole[1, :2, :4])
    changed = [ItemSeeds(seeds.ids, 4, 7), ItemSeeds(seeds.ids, 3, 8), ItemSeeds(("A", "B", "C", "ä"), 3, 7)]
    others = [seeds.apart("second"), *changed]
    rows = [whole.flatten(0, 1), seeds.uniform("crops", 9, 3), *(other.uniform("tokens", 9, 3) for other in others)]
    assert len(torch.unique(torch.cat(rows))) == 6 * 12 * 9


def test_rows_are_uniform_and_independent() -> None:
    drawn_RK = ItemSeeds(tuple(f"{n}.jpg" for n in range(2000))).uniform("tokens", 10, samples=2)
    assert np.bincount((drawn_RK.numpy().ravel() * 20).astype(int), minlength=20) == pytest.approx(2000, rel=0.1)
    correlation_KK = np.corrcoef(torch.cat([drawn_RK[::2], drawn_RK[1::2]], dim=1).numpy().T)
    assert np.abs(correlation_KK - np.eye(20)).max() < 0.1


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    scores_V = torch.tensor([0.0, 2.0, -torch.inf, 1.0, -torch.inf])
    drawn_R = ItemSeeds(tuple(map(str, range(20_000)))).uniform("tokens", 1)[:, 0]
    for temperature in (0.5, 1.0):
        tokens_R = next_token(scores_V.expand(20_000, 5), Decoding(kind="sample", temperature=temperature), drawn_R)
        shares_V = torch.bincount(tokens_R, minlength=5) / 20_000
        torch.testing.assert_close(shares_V, (scores_V / temperature).softmax(0), rtol=0, atol=0.01)
        assert shares_V[2] == shares_V[4] == 0
    ends_R = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    assert next_token(scores_V.expand(2, 5), Decoding(kind="sample"), ends_R).tolist() == [0, 3]


def test_orders_of_many_items_are_those_of_each_alone() -> None:
    seeds, counts = ItemSeeds(("a", "b", "c", "d"), 3, 7), [5, 1, 4, 0]
    together = seeds.orders("references", counts)
    alone = [seeds[place : place + 1].orders("references", [count])[0] for place, count in enumerate(counts)]
    by_hand = [seeds[k : k + 1].uniform("references", n)[0].argsort(stable=True).tolist() for k, n in enumerate(counts)]
    assert together == alone == by_hand and [sorted(order) for order in together] == [list(range(n)) for n in counts]
    assert seeds[:0].orders("references", []) == []
