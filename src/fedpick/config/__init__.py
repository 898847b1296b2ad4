"""Configuration: TOML and JSON to and from fedpick's own dataclasses, overrides and sweeps."""

from fedpick.config.converter import Plain, describe, leaves, structure, unstructure
from fedpick.config.settings import expand, is_plain, override, read_plain, table_at

__all__ = [
    "Plain",
    "describe",
    "expand",
    "is_plain",
    "leaves",
    "override",
    "read_plain",
    "structure",
    "table_at",
    "unstructure",
]
