"""Bugs that other projects have had: what is known of them, and where they are noticed here."""
