"""Contents are a pure function of what they should depend on, and of nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedkv.spec.content import extend_path, path_digests, root_digest, splitmix64, splitmix64_each, vectors
from pagedkv.spec.words import Misuse

paths = st.lists(st.integers(0, 2**40), max_size=12)


@given(paths, paths)
def test_a_path_can_be_extended_later(first: list[int], then: list[int]) -> None:
    whole = path_digests(3, "a", first + then)
    begun = path_digests(3, "a", first)
    digest = int(begun[-1]) if first else root_digest(3, "a")
    assert np.concatenate([begun, extend_path(digest, then)]).tolist() == whole.tolist()


@given(paths.filter(bool), st.data())
def test_a_token_changes_its_position_and_all_later_ones(tokens: list[int], data: st.DataObject) -> None:
    changed = data.draw(st.integers(0, len(tokens) - 1))
    other = [*tokens[:changed], tokens[changed] + 1, *tokens[changed + 1 :]]
    same = path_digests(0, "", tokens) == path_digests(0, "", other)
    assert same.tolist() == [position < changed for position in range(len(tokens))]


def test_seed_namespace_kind_layer_head_and_position_all_count() -> None:
    tokens = [1, 1, 2]
    made = [vectors(path_digests(0, "", tokens), "key", 2, 4)]
    made += [vectors(path_digests(seed, namespace, tokens), "key", 2, 4) for seed, namespace in ((1, ""), (0, "t"))]
    made += [
        vectors(path_digests(0, ("a", 1), tokens), "key", 2, 4),
        vectors(path_digests(0, "", tokens), "value", 2, 4),
    ]
    made += [vectors(path_digests(0, "", tokens), "query", 2, 4), vectors(path_digests(0, "", tokens), "key", 2, 4, 1)]
    rows = np.concatenate([each.reshape(-1, 4) for each in made])
    assert len(np.unique(rows, axis=0)) == len(rows) == 7 * 3 * 2


@given(paths.filter(bool), st.sampled_from(["key", "value", "query"]))
def test_a_vector_does_not_depend_on_its_company(tokens: list[int], kind: str) -> None:
    digests = path_digests(0, "", tokens)
    together = vectors(digests, kind, 2, 3)  # type: ignore[arg-type]  # drawn from the three kinds
    assert together.shape == (len(tokens), 2, 3)
    assert together.dtype == np.float32
    alone = [vectors(digests[p : p + 1], kind, 2, 3) for p in range(len(tokens))]  # type: ignore[arg-type]  # as above
    assert together.tobytes() == np.concatenate(alone).tobytes()


def test_the_bits_are_the_same_everywhere() -> None:
    """Pinned: a change here silently changes what every recorded trace means."""
    digests = path_digests(0, "", [1, 2**63])
    assert [hex(int(digest)) for digest in digests] == ["0x992eeb8e3b102c7c", "0xa10421799eb213df"]
    assert vectors(digests, "key", 1, 2, layer=3).view(np.uint32).ravel().tolist() == [
        3213917170,
        3194952365,
        1042286199,
        3201335008,
    ]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_one_int_and_an_array_mix_alike(states: list[int]) -> None:
    assert splitmix64_each(np.array(states, dtype=np.uint64)).tolist() == [splitmix64(state) for state in states]


def test_values_look_normal_and_uncorrelated() -> None:
    """40,000 numbers: each mean below has a standard deviation of 0.005 to 0.02, so 0.1 is five of them or more."""
    x = vectors(path_digests(0, "", range(2500)), "value", 2, 8).astype(np.float64)
    assert abs(x.mean()) < 0.1
    assert abs(x.var() - 1) < 0.1
    assert abs((x[:, 0] * x[:, 1]).mean()) < 0.1
    assert abs((x[1:] * x[:-1]).mean()) < 0.1


def test_an_unknown_kind_is_misuse() -> None:
    with pytest.raises(Misuse, match="kind='keys'"):
        vectors(path_digests(0, "", [1]), "keys", 1, 1)  # type: ignore[arg-type]  # the misuse under test
