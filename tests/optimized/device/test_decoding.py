"""Decode steps over a pool: whatever blocks were shared, copied, released and used again, each request sees its KV."""

import random

import pytest
import torch
from torch import Tensor

from pagedkv.optimized import DevicePool, RowOutcome, paged_attention
from pagedkv.optimized.device.decoding import DecodeStep
from pagedkv.spec import Misuse

BLOCKS, SIZE, ROWS, HEADS, GROUP, DIM, LAYERS = 24, 4, 6, 2, 2, 8, 2
Text = list[tuple[Tensor, Tensor]]
"""Key and value (LAYERS, HEADS, DIM) of each position."""


class Requests:
    """What each row holds, as lists: the KV that its request has seen written, in order."""

    def __init__(self, window: int | None, seed: int) -> None:
        self.rng, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.pool = DevicePool(BLOCKS, SIZE, ROWS, 16, sliding_window=window)
        self.k_caches = [torch.full((BLOCKS, SIZE, HEADS, DIM), torch.nan) for _ in range(LAYERS)]
        self.v_caches = [cache.clone() for cache in self.k_caches]
        self.step = DecodeStep(self.pool, self.k_caches, self.v_caches)
        self.texts: dict[int, Text] = {}

    def drawn(self, heads: int) -> Tensor:
        return torch.randn(LAYERS, ROWS, heads, DIM, generator=self.generator)

    def begin_anew(self) -> None:
        """A new request, or a fork, in a row that is not in use; or one ends."""
        unused = [row for row in range(ROWS) if row not in self.texts]
        if unused and self.texts and self.rng.random() < 0.6:
            parent = self.rng.choice(sorted(self.texts))
            assert self.pool.fork(torch.tensor([parent]), torch.tensor(unused[:1])).tolist() == [RowOutcome.OK]
            self.texts[unused[0]] = list(self.texts[parent])
        elif unused:
            assert self.pool.admit(torch.tensor(unused[:1]), torch.tensor([0])).outcome.tolist() == [RowOutcome.OK]
            self.texts[unused[0]] = []
        else:
            row = self.rng.choice(sorted(self.texts))
            assert self.pool.free(torch.tensor([row])).tolist() == [RowOutcome.OK]
            del self.texts[row]

    def decode(self) -> int:
        """One step of most rows; what it gives is held against private copies. Returns how many were refused."""
        where = torch.tensor([self.rng.random() < 0.8 for _ in range(ROWS)])
        key, value, query = self.drawn(HEADS), self.drawn(HEADS), self.drawn(HEADS * GROUP)
        plan = self.step.begin(where)
        outs = [self.step.attend(i, query[i], key[i], value[i]) for i in range(LAYERS)]
        for row, outcome in enumerate(plan.outcome.tolist()):
            if outcome == RowOutcome.OK:
                self.texts[row].append((key[:, row], value[:, row]))
                for i in range(LAYERS):
                    assert torch.equal(outs[i][row], alone(self.texts[row], i, query[i, row], self.pool))
            else:
                assert not any(out[row].any() for out in outs)
        return plan.outcome.tolist().count(RowOutcome.CAPACITY)


def alone(text: Text, layer: int, query: Tensor, pool: DevicePool) -> Tensor:
    """Attention over a cache that holds this text only, from its first block on."""
    count = -(-len(text) // SIZE)
    caches = torch.zeros(2, count * SIZE, HEADS, DIM)
    caches[0, : len(text)] = torch.stack([key[layer] for key, _ in text])
    caches[1, : len(text)] = torch.stack([value[layer] for _, value in text])
    k_cache, v_cache = caches.view(2, count, SIZE, HEADS, DIM)
    tables, lengths = torch.arange(count, dtype=torch.int32)[None], torch.tensor([len(text)], dtype=torch.int32)
    window = pool.shape.sliding_window
    out = paged_attention(query[None], k_cache, v_cache, tables, lengths, window=window)
    assert isinstance(out, Tensor)
    return out[0]


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("seed", range(4))
def test_a_step_gives_the_bits_of_attention_over_private_copies(seed: int, window: int | None) -> None:
    requests = Requests(window, seed)
    refused = 0
    for _ in range(60):
        if requests.rng.random() < 0.4:
            requests.begin_anew()
        if any(len(text) >= 60 for text in requests.texts.values()):
            break
        refused += requests.decode()
        assert not requests.pool.check().any()
    assert refused > 0 or window is not None, "the pool is small enough to run out"


def test_misuse() -> None:
    pool, cache = DevicePool(4, 2, 2, 4), torch.zeros(4, 2, 1, 8)
    with pytest.raises(Misuse, match="v_caches="):
        DecodeStep(pool, [cache], [])
    with pytest.raises(Misuse, match=r"k_caches\[0\]\.shape="):
        DecodeStep(pool, [cache[:3]], [cache])
    windowed = DevicePool(4, 2, 2, 4, sliding_window=2)
    for window in (None, 3):
        with pytest.raises(Misuse, match="window="):
            DecodeStep(windowed, [cache], [cache], window=window)
    with pytest.raises(Misuse, match="options="):
        DecodeStep(pool, [cache], [cache], return_lse=True)
    with pytest.raises(Misuse, match=r"pool\.sink_tokens="):
        DecodeStep(DevicePool(4, 2, 2, 4, sliding_window=2, sink_tokens=1), [cache], [cache])
    step = DecodeStep(pool, [cache], [cache])
    step.begin()
    with pytest.raises(Misuse, match="begin="):
        step.begin()
    with pytest.raises(Misuse, match="layer="):
        step.attend(1, cache[0], cache[0], cache[0])
    with pytest.raises(Misuse, match="attend="):
        DecodeStep(pool, [cache], [cache]).attend(0, cache[0], cache[0], cache[0])
