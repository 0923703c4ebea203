"""Positions: the paper's formula number by number, and what it is good for."""

from __future__ import annotations

import copy
import math
from decimal import Decimal, getcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shapes import D_MODEL, TOLERANCE, largest_difference, normal, quick
from torch import Tensor

from annotated_transformer.positions import LearnedPositions, SinusoidalPositions, sinusoids


def by_formula(n: int, d_model: int, start: int = 0) -> Tensor:
    """Section 3.5 with Python's own sine and cosine: even columns 2i, odd columns 2i + 1."""
    table = torch.empty(n, d_model, dtype=torch.float64)
    for row in range(n):
        for column in range(d_model):
            i, odd = divmod(column, 2)
            angle = (start + row) / 10_000 ** (2 * i / d_model)
            table[row, column] = math.cos(angle) if odd else math.sin(angle)
    return table


@pytest.mark.parametrize("start", [0, 1, 13])
@pytest.mark.parametrize("d_model", [1, 2, 3, D_MODEL, 32])
def test_sinusoids_are_the_formula(d_model, start):
    ours = sinusoids(17, d_model, start)
    assert ours.dtype == torch.float64
    assert largest_difference(ours, by_formula(17, d_model, start)) < TOLERANCE


def test_the_numbers_of_a_small_table():
    """By hand: d_model = 4 has the wavelengths 2π and 100 · 2π."""
    sin, cos = math.sin, math.cos
    expected = [[0, 1, 0, 1], [sin(1), cos(1), sin(0.01), cos(0.01)], [sin(2), cos(2), sin(0.02), cos(0.02)]]
    assert largest_difference(sinusoids(3, 4), torch.tensor(expected, dtype=torch.float64)) < TOLERANCE


def test_no_position_and_a_start():
    assert sinusoids(0, 5).shape == (0, 5)
    assert torch.equal(sinusoids(7, 6, 11), sinusoids(18, 6)[11:])


def test_an_odd_width_ends_with_a_sine():
    assert sinusoids(9, 5).shape == (9, 5)
    assert largest_difference(sinusoids(9, 5)[:, 4], (torch.arange(9).double() / 10_000 ** (4 / 5)).sin()) < TOLERANCE


@quick
@given(pos=st.integers(0, 500), distance=st.integers(0, 500), d_model=st.integers(1, 16).map(lambda half: 2 * half))
def test_a_step_turns_every_pair_by_an_angle_that_does_not_depend_on_where(pos, distance, d_model):
    """PE(pos + k) is a linear function of PE(pos) (section 3.5): a rotation of each sine with its cosine."""
    here, there = sinusoids(1, d_model, pos)[0], sinusoids(1, d_model, pos + distance)[0]
    for i in range(d_model // 2):
        angle = distance / 10_000 ** (2 * i / d_model)
        turn = torch.tensor(
            [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64
        )
        assert largest_difference(turn @ here[2 * i : 2 * i + 2], there[2 * i : 2 * i + 2]) < TOLERANCE


def test_wavelengths_grow_from_2_pi_and_stop_short_of_10000_times_that():
    d_model = 512
    wavelengths = 2 * math.pi * 10_000 ** (torch.arange(0, d_model, 2).double() / d_model)
    period = sinusoids(8, d_model)
    angles = torch.atan2(period[1, 0::2], period[1, 1::2])  # what position 1 is turned by
    assert largest_difference(2 * math.pi / angles, wavelengths) < 1e-6
    assert wavelengths[-1] < 10_000 * 2 * math.pi


def test_far_positions_are_exact_in_float32():
    """A float32 angle out here is known to a sixteenth of a radian; the module computes in float64 and rounds then."""
    getcontext().prec = 60
    pos, d_model = 1_000_003, 6
    ours = SinusoidalPositions(d_model)(1, pos, torch.empty(0))[0]
    assert ours.dtype == torch.float32
    for i in range(3):
        angle = Decimal(pos) / Decimal(10_000) ** (Decimal(2 * i) / Decimal(d_model))
        two_pi = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494")
        rest = float(angle % two_pi)
        assert abs(ours[2 * i].item() - math.sin(rest)) < 1e-7
        assert abs(ours[2 * i + 1].item() - math.cos(rest)) < 1e-7


# The module


@quick
@given(calls=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300)), min_size=1, max_size=6))
def test_the_module_gives_the_table_whatever_was_asked_before(calls):
    module = SinusoidalPositions(D_MODEL)
    for n, start in calls:
        encoding = module(n, start, torch.empty(0, dtype=torch.float64))
        assert torch.equal(encoding, sinusoids(n, D_MODEL, start))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 129])
def test_the_table_grows_at_its_borders(n):
    module = SinusoidalPositions(4)
    assert torch.equal(module(n, 0, torch.empty(0).double()), sinusoids(n, 4))
    assert torch.equal(module(1, n, torch.empty(0).double()), sinusoids(1, 4, n))


def test_the_table_comes_as_the_vectors_are_stored():
    module = SinusoidalPositions(D_MODEL)
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float64):
        encoding = module(5, 2, torch.empty(0, dtype=dtype))
        assert encoding.dtype == dtype
        assert torch.equal(encoding, sinusoids(5, D_MODEL, 2).to(dtype))
    assert module(5, 2, torch.empty(0, device="meta")).is_meta
    assert not module(5, 2, torch.empty(0)).is_meta


def test_sinusoids_are_not_learned_and_not_saved():
    module = SinusoidalPositions(D_MODEL)
    module(5, 0, torch.empty(0))
    assert list(module.parameters()) == []
    assert module.state_dict() == {}
    assert torch.equal(copy.deepcopy(module)(5, 0, torch.empty(0)), module(5, 0, torch.empty(0)))


def test_learned_positions_are_rows_of_a_matrix():
    module = LearnedPositions(11, D_MODEL)
    weight = normal(11, D_MODEL)
    module.weight.data = weight
    assert torch.equal(module(5, 2, torch.empty(0).double()), weight[2:7])
    assert torch.equal(module(11, 0, torch.empty(0).double()), weight)
    module(5, 2, torch.empty(0).double()).sum().backward()
    assert module.weight.grad.sum(1).tolist() == [0, 0, *[D_MODEL] * 5, 0, 0, 0, 0]
    assert module(5, 2, torch.empty(0, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_learned_positions_start_as_large_as_the_sinusoids():
    assert sinusoids(512, 64).square().mean().item() == pytest.approx(0.5, rel=0.02)
    assert LearnedPositions(512, 64).weight.square().mean().item() == pytest.approx(0.5, rel=0.02)


# What is refused


@pytest.mark.parametrize("value", [3.0, "3", None, True], ids=repr)
@pytest.mark.parametrize("name", ["n", "d_model", "start"])
def test_sinusoids_take_integers(name, value):
    with pytest.raises(TypeError, match=rf"^{name} must be an integer, got {value!r}\.$"):
        sinusoids(**{"n": 3, "d_model": 4, "start": 0, name: value})


@pytest.mark.parametrize(("name", "least"), [("n", 0), ("d_model", 1), ("start", 0)])
def test_sinusoids_take_no_less(name, least):
    with pytest.raises(ValueError, match=rf"^{name} must be at least {least}, got {least - 1}\.$"):
        sinusoids(**{"n": 3, "d_model": 4, "start": 0, name: least - 1})


@pytest.mark.parametrize("module", [SinusoidalPositions(4), LearnedPositions(11, 4)], ids=["sinusoidal", "learned"])
def test_modules_take_a_number_and_a_start(module):
    for arguments, error, message in (
        ((-1, 0), ValueError, r"^n must be at least 0, got -1"),
        ((3, -1), ValueError, r"^start must be at least 0, got -1"),
        ((3.0, 0), TypeError, r"^n must be an integer, got 3\.0"),
        ((3, None), TypeError, r"^start must be an integer, got None"),
    ):
        with pytest.raises(error, match=message):
            module(*arguments, torch.empty(0))
    assert module(0, 0, torch.empty(0)).shape == (0, 4)


@pytest.mark.parametrize(("n", "start"), [(12, 0), (1, 11), (5, 7)])
def test_learned_positions_end(n, start):
    message = rf"^n = {n} positions from {start} on reach beyond the 11 learned ones \(max_length\)\.$"
    with pytest.raises(ValueError, match=message):
        LearnedPositions(11, 4)(n, start, torch.empty(0))


def test_wrong_sizes_are_refused():
    for make, name in (
        (lambda size: SinusoidalPositions(size), "d_model"),
        (lambda size: LearnedPositions(11, size), "d_model"),
        (lambda size: LearnedPositions(size, 4), "max_length"),
    ):
        with pytest.raises(ValueError, match=rf"^{name} must be at least 1, got 0\.$"):
            make(0)
        with pytest.raises(TypeError, match=rf"^{name} must be an integer, got 4\.0\.$"):
            make(4.0)


def test_a_table_made_while_decoding_serves_a_training_step():
    module = SinusoidalPositions(6)
    with torch.inference_mode():
        module(5, 0, torch.zeros(1))
    weight = torch.ones(5, 6, requires_grad=True)
    (module(5, 0, weight) * weight).sum().backward()  # keeps the table for the backward pass
    assert torch.equal(weight.grad, module(5, 0, weight))
