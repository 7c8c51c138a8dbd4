"""Bugs of identity: what a prefix is besides its tokens, and what a hash proves."""

from typing import Final

from tests.conformance.mutants.mutation import Mutant

from tests.conformance.illegal import ILLEGAL
from tests.conformance.illegal_tool import mutant
from tests.conformance.real_bugs.records import Record

_HITS: Final = "hits are the longest published prefix, with one token left to compute"

TRUSTED: Final = mutant(
    "hash_trusted",
    "a hit compares the tokens",
    "index",
    (
        "        mine: Prefix | None = self\n",
        "        return self._hash == other._hash\n        mine: Prefix | None = self\n",
    ),
    ("hash((namespace if parent is None else parent._hash, block_tokens))",
     "hash((crc32(str(namespace).encode()) if parent is None else parent._hash, block_tokens)) & 0xFF"),
    ("class Prefix:\n", "from zlib import crc32\n\n\nclass Prefix:\n"),
)  # fmt: skip
"""Hashes of tuples of integers are the same in every process (those of texts are not), so a collision can be prepared;
the traces have one. Who has prepared none meets one by chance once the hash is short, and so do random programs."""


def _keyed(name: str, key: str) -> Mutant:
    """An index that compares namespaces by `key`, an expression of `namespace`."""
    return mutant(
        name,
        "identity is the namespace and the whole path",
        "index",
        ("class Prefix:\n", f"import re\n\n\ndef key(namespace):\n    return {key}\n\n\nclass Prefix:\n"),
        ("self.namespace != other.namespace", "key(self.namespace) != key(other.namespace)"),
        ("namespace if parent is None", "key(namespace) if parent is None"),
    )


COLLIDING: Final = (
    Record("B089", TRUSTED, _HITS, 6),
    Record("B099", TRUSTED, _HITS, 6),
    Record("B100", TRUSTED, _HITS, 5, nearest="no bug there, for tokens are compared; the mutant leaves that out"),
)

NAMING: Final = (
    Record("B091", _keyed("name_without_its_kind", 'namespace.partition("=")[2]'), _HITS, 6),
    Record("B092", _keyed("adapter_without_its_id", 're.sub(" id=[0-9]+", "", namespace)'), _HITS, 6),
    Record("B093", _keyed("adapter_without_its_load", 're.sub(" load=[0-9]+", "", namespace)'), _HITS, 6),
    Record("B095", ILLEGAL["wrong_namespace_hit"], _HITS, 6),
    Record("B097", ILLEGAL["wrong_namespace_hit"], _HITS, 6),
    Record("B102", _keyed("parts_of_the_key_run_together", 'namespace.replace("|", "")'), _HITS, 6),
    Record(
        "B101",
        mutant(
            "lookup_by_tokens_alone",
            "a namespace shows nothing of another",
            "prefixes",
            (
                'hits = self.pool.index.match(namespace, token_path("tokens", tokens))\n',
                """path = token_path("tokens", tokens)
        tenants = {prefix.namespace for prefix in self.pool.index.block_of}
        hits = max((self.pool.index.match(tenant, path) for tenant in tenants), key=len, default=[])
""",
            ),
        ),
        _HITS,
        6,
        nearest="there is no external store; `lookup` is what tells one tenant of another",
    ),
)
