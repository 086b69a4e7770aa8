"""Final loops: what is left of a planned split, and views cut into loops that nest."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from sympy import Symbol, sympify

from adapterc.spyre_runtime.align import Loop, View, align
from adapterc.spyre_runtime.refusal import Refusal
from adapterc.spyre_runtime.terms import Coordinate, Term, coordinate_of

D0, D1, D2 = (Symbol(f"d{i}") for i in range(3))


def rows(rows, columns, stick=64):
    """The default tiling of a rows × columns tensor walked by d0, d1."""
    if columns <= stick:
        return View((1, rows, stick), (Coordinate(), along(D0), along(D1)))
    return View((-(-columns // stick), rows, stick), (tiled(D1, stick), along(D0), lane(D1, stick)))


def along(symbol, offset=0, scale=Fraction(1)):
    return Coordinate((Term(symbol, scale),), offset)


def tiled(symbol, stick=64, offset=0):
    return along(symbol, offset, Fraction(1, stick))


def lane(symbol, stick=64):
    return Coordinate((Term(symbol, Fraction(1), stick),))


@pytest.mark.parametrize("size, planned, kept", [(4304, 17, 1), (50257, 6, 1), (30522, 9, 3), (151936, 2, 2), (4096, 32, 32)])
def test_a_split_in_sticks_survives_as_far_as_it_divides_the_elements(size, planned, kept):
    view = rows(64, size)
    aligned = align({D0: 64, D1: size}, {D0: 1, D1: planned}, [view, view])
    assert aligned.loops == (Loop("d0", 64, 1), Loop("d1", size, kept))


def test_operands_that_agree_are_left_alone():
    view = rows(33, 128)
    aligned = align({D0: 33, D1: 128}, {D0: 11, D1: 1}, [view, view])
    assert aligned.views == (view, view)
    assert aligned.loops == (Loop("d0", 33, 11), Loop("d1", 128, 1))


def test_a_view_that_splits_a_loop_in_one_operand_splits_it_for_all():
    """d0 runs over 8 × 4 rows: one operand has them in two device dimensions, inner one first, the other in one."""
    two = View((4, 8, 1, 64), (Coordinate((Term(D0, Fraction(1), 4),)), Coordinate((Term(D0, Fraction(1, 4)),)), Coordinate(), along(D1)))
    one = rows(32, 64)
    aligned = align({D0: 32, D1: 64}, {D0: 16, D1: 1}, [two, one])
    sizes = {loop.name: (loop.size, loop.cores) for loop in aligned.loops}
    assert sizes == {"d0": (4, 2), "z0": (8, 8), "d1": (64, 1)}
    first, second = aligned.views
    assert [str(c) for c in first.coordinates] == ["floor(d1/64)", "d0", "z0", "Mod(d1, 64)"]
    assert [str(c) for c in second.coordinates] == ["floor(d1/64)", "z0", "d0", "Mod(d1, 64)"]
    assert second.size == (1, 8, 4, 64)


def test_neighbouring_dimensions_that_continue_each_other_stay_one_loop():
    two = View((8, 4, 1, 64), (Coordinate((Term(D0, Fraction(1, 4)),)), Coordinate((Term(D0, Fraction(1), 4),)), Coordinate(), along(D1)))
    aligned = align({D0: 32, D1: 64}, {D0: 16, D1: 1}, [two, rows(32, 64)])
    assert aligned.loops == (Loop("d0", 32, 16), Loop("d1", 64, 1))
    assert aligned.views[0] == aligned.views[1]


def test_the_outer_piece_gets_its_share_of_the_cores_first():
    two = View((4, 6, 1, 64), (Coordinate((Term(D0, Fraction(1), 4),)), Coordinate((Term(D0, Fraction(1, 4)),)), Coordinate(), along(D1)))
    aligned = align({D0: 24, D1: 64}, {D0: 12, D1: 1}, [two, two])
    cores = {loop.name: loop.cores for loop in aligned.loops}
    assert cores == {"d0": 2, "z0": 6, "d1": 1}
    assert math.prod(cores.values()) == 12


def test_a_slice_that_pins_a_dimension_gets_a_loop_of_one_in_every_operand():
    source = View((1, 8, 5, 64), (Coordinate(), Coordinate((), 3), along(D0), along(D1)))
    aligned = align({D0: 5, D1: 64}, {D0: 5, D1: 1}, [source, rows(5, 64)])
    assert {loop.name: loop.size for loop in aligned.loops} == {"d0": 5, "d1": 64, "z0": 1}
    assert any(c.offset == 3 and c.symbols for c in aligned.views[0].coordinates)
    assert all(any("z0" in str(c) for c in view.coordinates) for view in aligned.views)


def test_operands_are_brought_to_one_rank_with_a_tile_dimension():
    bias = View((2, 64), (tiled(D1), lane(D1)))
    aligned = align({D0: 7, D1: 128}, {D0: 7, D1: 1}, [rows(7, 128), bias, rows(7, 128)])
    assert {len(view.size) for view in aligned.views} == {3}
    assert aligned.views[1].size == (1, 2, 64)


def test_a_bare_loop_on_a_single_stick_gets_its_tile():
    view = View((7, 1, 64), (along(D0), Coordinate(), along(D1)))
    aligned = align({D0: 7, D1: 64}, {D0: 7, D1: 1}, [view, view])
    assert [str(c) for c in aligned.views[0].coordinates] == ["floor(d1/64)", "d0", "Mod(d1, 64)"]


def test_a_broken_fraction_is_refused():
    view = View((3, 7, 64), (along(D1, 0, Fraction(9, 8)), along(D0), lane(D1)))
    with pytest.raises(Refusal) as refused:
        align({D0: 7, D1: 64}, {D0: 1, D1: 1}, [view, view])
    assert refused.value.kind == "AssertionError@_inductor/views.py:normalize_coordinates"


def test_a_start_inside_a_dimension_that_nothing_walks_is_refused():
    view = View((1, 7, 64), (Coordinate(), along(D0), Coordinate((), 5)))
    with pytest.raises(Refusal):
        align({D0: 7}, {D0: 1}, [view, view])


def test_row_numbers_pass_through_unchanged():
    gathered = View((1, 100, 64), (Coordinate(), Coordinate((Term(Symbol("tmp0")),)), along(D1)))
    aligned = align({D0: 7, D1: 64}, {D0: 7, D1: 1}, [gathered, rows(7, 64)])
    assert "tmp0" in {str(s) for c in aligned.views[0].coordinates for s in c.symbols}


@pytest.mark.parametrize(
    "text", ["d0", "floor(d1/64) + 2", "Mod(d0, 64)", "4*d0 + floor(Mod(d1, 128)/64)", "Mod(3*d0, 4)", "0", "7", "2*Mod(d1, 8) + 1"]
)
def test_coordinates_come_back_from_their_terms(text):
    expr = sympify(text)
    taken = coordinate_of(expr)
    assert taken.expr == expr
    for value in range(0, 200, 7):
        assert taken.offset + sum(t.at(value) for t in taken.terms) == int(expr.subs(dict.fromkeys(expr.free_symbols, value)))


def test_two_loops_under_one_quotient_are_refused():
    with pytest.raises(Refusal):
        coordinate_of(sympify("floor((d0 + d1)/3)"))
