"""Rung 6: Hypothesis looks for what contradicts the class that the ladder found.

It draws sizes (around the stick, ones, and none at all), tensors whose values it can make small again, the special values of a format in every
combination, and activations recorded from a real model (verify/activations.json). A contradiction is shrunk by Hypothesis and lowers the class.
Derandomised, without a database and without a deadline: the same rule and the same code draw the same examples on every machine.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from adapterc.dsl.types import RestDims, TensorType, Type
from adapterc.verify.cases import Decision, spaced
from adapterc.verify.claim import Claim, size_symbols
from adapterc.verify.compare import admitted, differences, in_format, over_reals, test_format
from adapterc.verify.formats import FORMATS, Format, all_values
from adapterc.verify.instances import Instance, instantiate
from adapterc.verify.samples import EXTREME, NONFINITE, NUMBERS, ORDINARY, SPECIAL, SPECIALS, Batch, index_limits
from adapterc.verify.shrink import counterexample
from adapterc.verify.tensors import ShapeError, Tensor
from adapterc.verify.terms import TooLarge
from adapterc.verify.verdict import PROVED, REFUTED, TESTED, Counterexample, Evidence

RUNG = "6 Hypothesis"
EXAMPLES = 12  # of WIDTH samples each; half as many where a proof leaves only the format's edges to look for
WIDTH = 6
MOST_TERMS, MOST_ROOTS = 1_500, 8
CLASSES = ("EXACT", "EXACT-Z", "REAL", "EDGE")
Mask = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """What contradicts a class: the class that is left, in words why, and the shrunk example."""

    klass: str
    how: str
    edges: tuple[str, ...]
    example: Counterexample


@dataclass(frozen=True, slots=True)
class Search:
    """What a search met: a contradiction if any, how many examples were drawn, and in words where the sides part on empty tensors only."""

    finding: Finding | None
    drawn: int
    empty: str


class _Contradicted(Exception):
    """Raised inside a Hypothesis test; the finding is kept by the search."""


def searched(claim: Claim, decision: Decision, examples: int | None = None) -> Decision:
    """The decision after the search: its evidence says what was drawn; a contradiction refutes it or lowers its class.

    `examples` is how many are drawn (12 unless told, 6 of a rule that is proved). Decisions that are refuted, undecided or only approximate are left as they are.
    """
    usual = EXAMPLES // 2 if decision.status == PROVED else EXAMPLES
    count = usual if examples is None else examples
    if decision.status not in (PROVED, TESTED) or decision.klass not in CLASSES or count <= 0 or "ties" in decision.edges:
        return decision  # at ties the sides part over the reals, as the decision says already
    shapes = tuple(_shapes(claim))
    if not shapes:
        return decision
    misfit = _misfit(shapes)
    fit = tuple(i for i in shapes if i.right is not None)
    search = Search(None, 0, "")
    if misfit is None or misfit.edges:
        search = _search(fit, decision.klass, count) if fit else search
    finding, drawn = (misfit, 0) if misfit is not None and not misfit.edges else (search.finding, search.drawn)
    if finding is None:
        detail = f"{drawn} examples of {WIDTH} samples contradict nothing, at {'; '.join(i.describe() for i in fit)}"
        empty = misfit.how if misfit is not None else search.empty
        if empty:
            detail += f"; not counted, since no model has a dimension of zero: {empty}"
        return replace(decision, evidence=(*decision.evidence, Evidence(RUNG, detail, (("examples", drawn), ("sizes", len(fit))))))
    evidence = (Evidence(RUNG, f"contradicts {decision.klass}: {finding.how}", (("examples", drawn),)), *decision.evidence)
    if finding.klass == "WRONG":
        return Decision("WRONG", REFUTED, finding.how, evidence, finding.example)
    formats = tuple((name, max(klass, finding.klass, key=_rank)) for name, klass in decision.formats)
    return replace(
        decision,
        klass=finding.klass,
        status=TESTED,
        how=finding.how,
        evidence=evidence,
        edges=finding.edges,
        counterexample=finding.example,
        formats=formats,
    )


def _rank(klass: str) -> int:
    return CLASSES.index(klass) if klass in CLASSES else len(CLASSES)


# Sizes ------------------------------------------------------------------------------------------------------------------------------------


def _shapes(claim: Claim) -> Iterator[Instance]:
    """Instances to draw from, smallest first (Hypothesis shrinks towards the first): twos and ones, empty ones, then around the stick."""
    symbols = size_symbols(claim.where)
    small = [dict.fromkeys(symbols, 2), {s: 2 + i % 3 for i, s in enumerate(symbols)}, dict.fromkeys(symbols, 1)]
    empty = [{s: 0 if s == chosen else 2 for s in symbols} for chosen in symbols]
    edges = [{s: size if s == chosen else 1 + i % 2 for s in symbols} for i, size in enumerate((64, 65, 63)) for chosen in symbols[:3]]
    rests: tuple[tuple[int, ...], ...] = ((), (2,), (2, 1), (0,), (65,)) if _has_rest(claim.where) else ((),)
    seen: set[tuple[object, ...]] = set()
    for kinds, most in ((small, 5), (empty, 3), (edges, 3)):
        found = 0
        for i, sizes in enumerate(kinds):
            # Every rest where there are no sizes to vary, else the next one each time.
            for rest in rests if not symbols else (rests[i % min(len(rests), 4)],):
                instance = _instance(claim, sizes, rest)
                key = (tuple(sorted(sizes.items())), rest)
                if (
                    instance is None
                    or len(instance.arena.nodes) > MOST_TERMS
                    or key in seen
                    or found == most
                    or _picks_from_nothing(instance)
                ):
                    continue
                seen.add(key)
                found += 1
                yield instance


def _has_rest(where: tuple[tuple[str, Type], ...]) -> bool:
    return any(isinstance(d, RestDims) for _, t in where if isinstance(t, TensorType) for d in t.dims)


def _picks_from_nothing(instance: Instance) -> bool:
    """Whether an index that is data chooses among no rows: such an index has no value."""
    return any(t.op == "select" and len(t.args) == 1 for t in instance.arena.nodes.values())


def _instance(claim: Claim, sizes: Mapping[str, int], rest: tuple[int, ...]) -> Instance | None:
    try:
        return instantiate(claim, sizes, rest)
    except (ShapeError, TooLarge):
        return None


def _misfit(shapes: tuple[Instance, ...]) -> Finding | None:
    """A size at which only the left side has a value: named as an edge where it is an empty tensor, wrong elsewhere."""
    for instance in shapes:
        # A result without elements has none that could be wrong: softmax of no columns, whose maximum the right side cannot take.
        if instance.right is None and instance.left.cells.size:
            empty = _empty(instance)
            example = Counterexample(
                tuple(sorted(instance.sizes.items())), (), (), f"shape {list(instance.left.shape)}", instance.fault, "shapes", instance.rest
            )
            how = f"the right side has no value at {instance.describe()}: {instance.fault}"
            return Finding("EDGE" if empty else "WRONG", how, ("empty",) if empty else (), example)
    return None


def _empty(instance: Instance) -> bool:
    return 0 in instance.sizes.values() or 0 in instance.rest


# Values -----------------------------------------------------------------------------------------------------------------------------------


@cache
def activations() -> tuple[tuple[float, ...], ...]:
    """Rows of activations of a real model, one a place in it (their provenance stands in the file)."""
    text = (files("adapterc.verify") / "activations.json").read_text(encoding="utf-8")
    return tuple(tuple(float(v) for v in place["values"]) for place in json.loads(text)["places"])


@cache
def special_values(target: Format) -> tuple[float, ...]:
    """Values at which formats and kernels differ, plainest first: zeros, ones, ties, subnormals, both ends, infinities and NaN."""
    eps, tiny, largest = target.epsilon, target.tiny, target.largest
    ties = (1 + eps, 1 + 1.5 * eps, 1 - eps / 2, 2 + eps)
    ends = (tiny, -tiny, tiny * eps, largest, -largest, largest / 2)
    return (0.0, 1.0, -1.0, 2.0, -0.0, 0.5, *SPECIALS[6:], *ties, *ends, float("inf"), float("-inf"), float("nan"))


@cache
def _half_values() -> tuple[float, ...]:
    return tuple(float(v) for v in all_values(FORMATS["float16"]))


def _strategy(st: Any, tensor: Tensor, limits: Mapping[int, int]) -> Any:
    """A row of values for one input; shorter rows than the tensor are repeated."""
    cells = list(tensor.cells.reshape(-1))
    if not cells:
        return st.just(())
    first = cells[0]
    if first.dtype == "bool":
        return st.lists(st.booleans(), min_size=1, max_size=min(len(cells), 8))
    if first.dtype.startswith(("int", "uint")):
        limit = limits.get(first.serial, 0)
        if -limit >= len(cells):  # places that are written, each once
            return st.permutations(range(-limit)).map(lambda order: list(order[: len(cells)]))
        # More indices than places are read, not written: a one-hot row compares them, and they may repeat.
        top = abs(limit) - 1 if limit else 9
        return st.lists(st.integers(0 if limit else -9, top), min_size=1, max_size=min(len(cells), 8))
    if first.dtype == "weak":
        return st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=1)
    target = FORMATS.get(first.dtype, FORMATS["float16"])
    plain = st.lists(st.sampled_from(special_values(target)), min_size=1, max_size=min(len(cells), 8))
    # Every float16 value, and those between that wider formats have.
    code = st.tuples(st.integers(0, 65_535), st.integers(0, 4_095)).map(lambda pick: _half_values()[pick[0]] * (1 + pick[1] * 2.0**-22))
    halves = st.lists(code, min_size=1, max_size=min(len(cells), 8))
    real = st.tuples(st.sampled_from(activations()), st.integers(0, 40)).map(lambda pick: pick[0][pick[1] :] + pick[0][: pick[1]])
    return st.one_of(plain, real, halves)


def _batch(instance: Instance, rows: list[dict[str, Any]]) -> Batch:
    values: dict[int, NDArray[Any]] = {}
    for name, tensor in instance.inputs.items():
        for i, term in enumerate(tensor.cells.reshape(-1)):
            values[term.serial] = np.array([row[name][i % len(row[name])] for row in rows], dtype=np.longdouble)
    kinds = np.array([_kind([float(v[k]) for v in values.values()]) for k in range(len(rows))], dtype=np.int8)
    return Batch(values, kinds).rounded(instance, test_format(instance))


def _kind(values: list[float]) -> int:
    sizes = [abs(v) for v in values]
    if not all(np.isfinite(sizes)):
        return NONFINITE
    if any(s > 2e4 or 0 < s < 1e-8 for s in sizes):
        return EXTREME
    return SPECIAL if any(s > 1e3 for s in sizes) else ORDINARY


# The search -------------------------------------------------------------------------------------------------------------------------------


def _search(shapes: tuple[Instance, ...], klass: str, count: int) -> Search:
    """Draw until something contradicts; Hypothesis then shrinks it, and the last that it saw is the smallest."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    filled = tuple(i for i in shapes if i.left.cells.size)
    if not filled:
        return Search(None, 0, "")
    limits = [index_limits(i) for i in filled]
    found: list[Finding] = []
    empty: list[Finding] = []
    drawn = 0

    def attempt(data: Any) -> None:
        nonlocal drawn
        drawn += not found
        which = data.draw(st.sampled_from(range(len(filled))))
        instance = filled[which]
        row = st.fixed_dictionaries({name: _strategy(st, tensor, limits[which]) for name, tensor in instance.inputs.items()})
        finding = contradiction(instance, _batch(instance, data.draw(st.lists(row, min_size=1, max_size=WIDTH))), klass)
        if finding is not None and finding.edges == ("empty",):
            empty.append(finding)
        elif finding is not None:
            found.append(finding)
            raise _Contradicted

    quiet = settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
    )
    run: Callable[[], None] = quiet(given(st.data())(attempt))
    with _no_files(), _no_constants_of_loaded_modules(), contextlib.suppress(_Contradicted):
        run()
    return Search(found[-1] if found else None, drawn, empty[0].how if empty else "")


@contextlib.contextmanager
def _no_constants_of_loaded_modules() -> Iterator[None]:
    """Hypothesis also draws numbers that it finds in the source of loaded modules; which those are depends on what else the process did."""
    from hypothesis.internal.conjecture import providers

    if not hasattr(providers, "_get_local_constants"):  # releases before 6.131 do not look there
        yield
        return
    none = type(providers._local_constants)()
    with patch.object(providers, "_get_local_constants", lambda: none):
        yield


@contextlib.contextmanager
def _no_files() -> Iterator[None]:
    """Hypothesis keeps its tables in a folder of the working directory; a check leaves nothing there."""
    from hypothesis import configuration

    if configuration.__dict__["__hypothesis_home_directory"] is not None:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(None)


def contradiction(instance: Instance, batch: Batch, klass: str) -> Finding | None:
    """What the samples show against the class, the gravest first; None where they agree with it."""
    roots = spaced(instance.pairs, MOST_ROOTS)
    finite = (batch.kind != NONFINITE) & admitted(instance, batch)
    if finite.any():
        parted = over_reals(instance, roots, batch)
        wrong = parted.apart.any(axis=0) & finite
        if wrong.any():
            if _empty(instance):  # a sum over nothing is 0 on one side only: an edge, not another function
                return _finding(instance, batch, wrong, "real", "EDGE", ("empty",)) if klass != "EDGE" else None
            return _finding(instance, batch, wrong, "real", "WRONG", ())
    if klass == "EDGE" or _empty(instance):
        return None  # what infinities do beside an empty sum is no edge that anyone meets
    name = test_format(instance)
    found = differences(instance, roots, batch, name)
    if (found.lost | found.spread).any() or (klass != "REAL" and found.any_nonfinite.any()):
        mask = found.lost | found.spread | found.any_nonfinite
        return _finding(instance, batch, mask, name, "EDGE", _edges(batch, mask, bool(found.lost.any())))
    if klass in ("EXACT", "EXACT-Z") and found.bits.any():
        return _finding(instance, batch, found.bits, name, "REAL", ())
    if klass == "EXACT" and found.zero_sign.any():
        return _finding(instance, batch, found.zero_sign, name, "EXACT-Z", ())
    return None


def _edges(batch: Batch, mask: Mask, lost: bool) -> tuple[str, ...]:
    values = np.array([v[mask] for v in batch.values.values()])
    named = (("overflow", lost), ("nan", np.isnan(values).any()), ("inf", np.isposinf(values).any()), ("-inf", np.isneginf(values).any()))
    return tuple(name for name, present in named if present) or ("nonfinite",)


def _finding(instance: Instance, batch: Batch, mask: Mask, format_name: str, klass: str, edges: tuple[str, ...]) -> Finding:
    sample = batch.only(np.arange(batch.count) == int(np.flatnonzero(mask)[0]))
    real = format_name == "real"
    parted = over_reals(instance, instance.pairs, sample) if real else in_format(instance.pairs, sample, format_name)
    apart = parted.apart[:, 0]
    example = counterexample(instance, sample, list(parted.left[:, 0]), list(parted.right[:, 0]), apart, format_name)
    where = "over the reals" if format_name == "real" else f"in {format_name}"
    how = f"{where} the left side gives {example.left}, the right side {example.right}"
    return Finding(klass, how if klass == "WRONG" else f"{how}{' at ' + ', '.join(edges) if edges else ''}", edges, example)
