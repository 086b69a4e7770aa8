"""What a rule's `when:` may ask: the model's config, the dtype and device, the backend profile, and the sizes that the match bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch


class ProfileLike(Protocol):
    """The part of spyre_runtime's `Profile` that predicates read."""

    @property
    def limits(self) -> Any: ...
    @property
    def gaps(self) -> Mapping[str, Any]: ...


class Config:
    """Read-only view of a Transformers config. A field that the config does not have reads as None, so that one predicate serves every family."""

    def __init__(self, source: object) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        source = object.__getattribute__(self, "_source")
        found = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        return Config(found) if isinstance(found, Mapping) or hasattr(found, "to_diff_dict") else found

    def __repr__(self) -> str:
        return f"Config({self._source!r})"


@dataclass(frozen=True)
class Context:
    """The surroundings of one graph."""

    config: Config
    profile: ProfileLike
    dtype: torch.dtype = torch.float16
    device: str = "spyre"
    sizes: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cores(self) -> int:
        return int(self.profile.limits.cores)

    @property
    def span_bytes(self) -> int:
        return int(self.profile.limits.span_bytes)

    @property
    def stick(self) -> int:
        """Elements of the context's dtype in one stick."""
        return int(self.profile.limits.stick_bytes) // self.dtype.itemsize

    def stick_of(self, dtype: torch.dtype) -> int:
        return int(self.profile.limits.stick_bytes) // dtype.itemsize

    def gap(self, name: str) -> bool:
        """Whether the profile lists the gap as open. A gap that the profile does not know is closed: the release has no such note."""
        note = self.profile.gaps.get(name)
        return note is not None and note.state == "open"

    def __getitem__(self, name: str) -> Any:
        """A size or number that the match bound."""
        return self.sizes[name] if name in self.sizes else self.scalars[name]

    def at(self, sizes: Mapping[str, int], scalars: Mapping[str, Any], dtype: torch.dtype | None) -> Context:
        return replace(self, sizes=sizes, scalars=scalars, dtype=dtype or self.dtype)
