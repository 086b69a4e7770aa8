"""What a generated patch imports: patterns, the rules as data, and the machinery that applies them to a captured graph."""

from ..patch_error import PatchError
from .context import Config, Context
from .match import Match, Matcher, Miss
from .patchset import GraphReport, Handle, PatchSet, context_of, rewrite_graph
from .pattern import Anything, DType, Op, Pattern, Rest, Scalar, Tensor, op
from .rules import Boundary, Expectation, Origin, Pad, Place, Replace, Require, Rewrite, Rule
from .sizes import Dim

__all__ = [
    "Anything",
    "Boundary",
    "Config",
    "Context",
    "DType",
    "Dim",
    "Expectation",
    "GraphReport",
    "Handle",
    "Match",
    "Matcher",
    "Miss",
    "Op",
    "Origin",
    "Pad",
    "PatchError",
    "PatchSet",
    "Pattern",
    "Place",
    "Replace",
    "Require",
    "Rest",
    "Rewrite",
    "Rule",
    "Scalar",
    "Tensor",
    "context_of",
    "op",
    "rewrite_graph",
]
