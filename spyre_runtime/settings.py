"""The simulator's settings: one frozen value, current for the whole process, changed for a while by ``settings(...)``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

from .formats import NumberRules
from .profile import Profile, load_profile
from .tiled_options import TiledOptions

Numerics = Literal["device", "fp32"]
Legality = Literal["refuse", "report"]
Executor = Literal["fast", "tiled"]


@dataclass(frozen=True)
class Settings:
    """``profile``: name of the backend release (``profiles/<name>.yaml``).

    ``numerics``: "device" rounds each op's output to the device format; "fp32" carries half-precision tensors unrounded in
    float32 while their dtypes, and with them every legality rule, stay as they are.
    ``legality``: "refuse" raises ``Refusal`` for a graph that the backend cannot take; "report" runs it all the same and
    records the refusals in ``compile_log()``.
    ``executor``: "fast" computes whole tensors, "tiled" each core's slice (a refused graph has no plan, and runs fast).
    ``tiled``: checks, padding, shuffling and injected faults of the tiled executor.
    ``number_rules``: rounding choices, where they shall differ from the profile's; None takes the profile's.
    ``switched``: faults of the compiler itself (ids of the profile) that are on or off, unlike in the release.
    """

    profile: str = "torch-spyre-2026-06"
    numerics: Numerics = "device"
    legality: Legality = "refuse"
    executor: Executor = "fast"
    tiled: TiledOptions = field(default_factory=TiledOptions)
    number_rules: NumberRules | None = None
    switched: tuple[tuple[str, bool], ...] = ()

    @property
    def backend(self) -> Profile:
        """The release that is simulated, its compiler faults switched as asked. Raises KeyError for an unknown fault."""
        return load_profile(self.profile).with_faults(dict(self.switched)) if self.switched else load_profile(self.profile)

    @property
    def rules(self) -> NumberRules:
        return profile_rules(self.profile) if self.number_rules is None else self.number_rules


@cache
def profile_rules(profile: str) -> NumberRules:
    """The rounding rules in a profile's ``numeric`` table. Raises FileNotFoundError that lists the profiles for a name that is none."""
    table = load_profile(profile).numeric
    return NumberRules(**{f.name: table[f.name].value for f in fields(NumberRules)})


_ALLOWED: dict[str, tuple[str, ...]] = {"numerics": ("device", "fp32"), "legality": ("refuse", "report"), "executor": ("fast", "tiled")}

# One value for the process, not one a thread: generate() with a streamer runs the model in a thread of its own.
_current = Settings()


def current_settings() -> Settings:
    return _current


@contextmanager
def settings(**changes: Any) -> Iterator[Settings]:
    """Run with some fields of ``Settings`` changed; raises ValueError that lists the choices for a value that is none."""
    global _current
    for name, value in changes.items():
        if name in _ALLOWED and value not in _ALLOWED[name]:
            raise ValueError(f"{name}={value!r} is not a setting; choose one of {', '.join(_ALLOWED[name])}")
    before = _current
    try:
        changed = replace(before, **changes)
    except TypeError as error:
        raise ValueError(f"unknown setting among {sorted(changes)}; there are {', '.join(Settings.__dataclass_fields__)}") from error
    _current = changed
    try:
        yield changed
    finally:
        _current = before
