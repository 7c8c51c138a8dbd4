"""How many of something, as reports say it. No module of the kit is imported: a pytest session without a subject needs
this, too."""


def counted(count: int, plural: str, singular: str = "") -> str:
    """A number with its noun, of which one has the `singular`: by default without the last letter.

    >>> counted(1, "operations"), counted(2_500, "operations"), counted(1, "launches", "launch")
    ('1 operation', '2,500 operations', '1 launch')
    """
    return f"{count:,} {(singular or plural[:-1]) if count == 1 else plural}"
