"""How many of something, as reports say it. No module of the kit is imported: a pytest session without a subject needs
this, too."""


def counted(count: int, plural: str) -> str:
    """A number with its noun.

    >>> counted(1, "operations"), counted(2_500, "operations"), counted(1, "launches")
    ('1 operation', '2,500 operations', '1 launch')
    """
    singular = plural.removesuffix("es" if plural.endswith("ches") else "s")
    return f"{count:,} {singular if count == 1 else plural}"
