"""Schedules, Adam, label smoothing in three conventions, and the gradients of one step."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from shapes import (
    BATCH,
    D_MODEL,
    PAD,
    TOLERANCE,
    VOCABULARY,
    M,
    N,
    largest_difference,
    normal,
    padded,
    quick,
    tokens,
    transformer,
)
from torch import nn

from annotated_transformer import optimization
from annotated_transformer.experiments.measure import matmul_flops, peak_bytes
from annotated_transformer.optimization import (
    adam,
    clip,
    learning_rate,
    make_schedule,
    projected_cross_entropy,
    smoothed_cross_entropy,
    smoothed_targets,
)

CONVENTIONS = ("uniform", "tensor2tensor", "opennmt")
EPS = 0.3
LABELS = padded(tokens(BATCH, M, seed=3), M, 3)  # two of ten are padding
REAL = LABELS != PAD


def projection(dtype=torch.float64):
    """Hidden states (BATCH, M, D_MODEL), and a generator's weight (VOCABULARY, D_MODEL)."""
    hidden = normal(BATCH, M, D_MODEL, seed=1, dtype=dtype, requires_grad=True)
    return hidden, normal(VOCABULARY, D_MODEL, seed=2, dtype=dtype, requires_grad=True)


def in_chunks_of(rows: int, monkeypatch) -> None:
    monkeypatch.setattr(optimization, "CHUNK", rows * VOCABULARY + VOCABULARY - 1)


# The learning rate


def test_the_learning_rate_is_equation_3():
    for step in (1, 2, 3999, 4000, 4001, 100_000):
        expected = 1 / math.sqrt(512) * min(1 / math.sqrt(step), step / (4000 * math.sqrt(4000)))
        assert learning_rate(step, 512) == pytest.approx(expected, rel=1e-12)
    assert learning_rate(7, 11, 5, factor=3.0) == pytest.approx(3 / math.sqrt(11) / math.sqrt(7), rel=1e-12)
    assert learning_rate(2, 11, 5, factor=3.0) == pytest.approx(3 / math.sqrt(11) * 2 / 5**1.5, rel=1e-12)


def test_the_peak_of_base_stands_at_the_end_of_the_warm_up():
    rates = [learning_rate(step, 512) for step in range(1, 8001)]
    assert rates.index(max(rates)) + 1 == 4000
    assert max(rates) == pytest.approx(6.988e-4, rel=1e-4)


@pytest.mark.parametrize("name", ["paper", "linear", "cosine"])
def test_every_schedule_warms_up_alike(name):
    schedule = make_schedule(name, 31, 11, factor=2.0, steps=37)
    for step in range(1, 12):
        assert schedule(step) == pytest.approx(learning_rate(step, 31, 11, 2.0), rel=1e-12)
    assert schedule(12) < schedule(11) > schedule(10)


def test_the_papers_schedule_is_equation_3_to_the_end_and_beyond():
    schedule = make_schedule("paper", 31, 11, factor=2.0, steps=37, floor=0.5)
    assert [schedule(step) for step in range(1, 60)] == [learning_rate(step, 31, 11, 2.0) for step in range(1, 60)]


@pytest.mark.parametrize(("name", "quarter"), [("linear", 0.75), ("cosine", (1 + math.sqrt(0.5)) / 2)])
def test_the_others_fall_to_their_floor_and_stay(name, quarter):
    schedule = make_schedule(name, 31, 10, steps=50, peak=0.7, floor=0.2)
    shares = [schedule(step) / 0.7 for step in (5, 10, 20, 30, 50, 51, 99)]
    assert shares == pytest.approx([0.5, 1, 0.2 + 0.8 * quarter, 0.6, 0.2, 0.2, 0.2], rel=1e-12)
    assert make_schedule(name, 31, 10, steps=50)(50) == 0


def test_without_steps_left_to_grow_a_schedule_starts_at_its_peak():
    assert make_schedule("linear", 31, 1, steps=5, peak=0.7)(1) == 0.7


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "step must be at least 1, got 0", lambda: learning_rate(0, 31)),
        (TypeError, "step must be an integer", lambda: learning_rate(1.5, 31)),
        (ValueError, "d_model must be at least 1", lambda: learning_rate(1, 0)),
        (ValueError, "warmup_steps must be at least 1", lambda: learning_rate(1, 31, 0)),
        (ValueError, "factor must be above 0", lambda: learning_rate(1, 31, factor=0)),
        (ValueError, "name must be one of paper, linear, cosine, got 'noam'", lambda: make_schedule("noam", 31)),
        (ValueError, "steps must be given for the schedule cosine", lambda: make_schedule("cosine", 31)),
        (ValueError, "steps must be at least 12, got 11", lambda: make_schedule("linear", 31, 11, steps=11)),
        (ValueError, "peak is for the schedules linear", lambda: make_schedule("paper", 31, peak=0.1)),
        (ValueError, "peak must be above 0", lambda: make_schedule("linear", 31, 11, steps=12, peak=0)),
        (ValueError, "floor is a share", lambda: make_schedule("linear", 31, 11, steps=12, floor=1.1)),
        (TypeError, "floor must be a number", lambda: make_schedule("linear", 31, 11, steps=12, floor="0")),
        (ValueError, "step must be at least 1", lambda: make_schedule("linear", 31, 11, steps=12)(0)),
        (ValueError, "step must be at least 1", lambda: make_schedule("paper", 31)(0)),
    ],
)
def test_schedules_refuse_what_they_cannot_do(error, message, call):
    with pytest.raises(error, match=message):
        call()


# Adam


def test_adam_is_the_papers():
    model = nn.Linear(3, 2, bias=False).double()
    optimizer = adam(model)
    weight, mean, square = model.weight.detach().clone(), 0.0, 0.0
    for step, rate in ((1, 0.1), (2, 0.03)):  # Adam's algorithm 1, with the paper's numbers
        gradient = normal(2, 3, seed=step) * 1e-8  # so small that ε counts
        mean = 0.9 * mean + (1 - 0.9) * gradient
        square = 0.98 * square + (1 - 0.98) * gradient**2
        weight -= rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.98**step)).sqrt() + 1e-9)
        model.weight.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    assert largest_difference(model.weight.detach(), weight) < TOLERANCE


def test_adam_takes_other_settings_and_waits_for_a_learning_rate():
    model = transformer()
    optimizer = adam(model, betas=(0.8, 0.9), eps=1e-3)
    [group] = optimizer.param_groups
    assert (group["betas"], group["eps"], group["lr"]) == ((0.8, 0.9), 1e-3, 0)
    assert (group["weight_decay"], group["amsgrad"]) == (0, False)
    assert len(group["params"]) == len(list(model.parameters()))  # the one matrix for three uses counts once


def test_adam_is_fused_where_that_is_possible():
    assert adam(nn.Linear(3, 2)).defaults["fused"]
    assert not adam(nn.Linear(3, 2, device="meta")).defaults["fused"]


def test_adam_refuses_what_it_cannot_train():
    with pytest.raises(TypeError, match="model must be a Module"):
        adam([nn.Parameter(torch.ones(1))])
    with pytest.raises(ValueError, match="empty parameter list"):
        adam(nn.ReLU())
    with pytest.raises(ValueError, match="Invalid beta"):
        adam(nn.Linear(3, 2), betas=(0.9, 1.0))


# What label smoothing trains towards


def expected_row(label, convention):
    """One token's target, number by number."""
    row = []
    for token in range(VOCABULARY):
        if convention == "uniform":
            row.append((1 - EPS) * (token == label) + EPS / VOCABULARY)
        elif token == label:
            row.append(1 - EPS)
        elif convention == "tensor2tensor":
            row.append(EPS / (VOCABULARY - 1))
        else:
            row.append(0 if token == PAD else EPS / (VOCABULARY - 2))
    return row


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_targets_number_by_number(convention):
    targets = smoothed_targets(LABELS, VOCABULARY, EPS, PAD, convention, torch.float64)
    expected = torch.tensor([expected_row(label, convention) for label in LABELS[REAL].tolist()], dtype=torch.float64)
    assert largest_difference(targets, expected) < 1e-15
    assert largest_difference(targets.sum(-1), torch.ones(8, dtype=torch.float64)) < 1e-15


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_without_smoothing_a_target_is_one_hot(convention):
    targets = smoothed_targets(LABELS.int(), VOCABULARY, 0, PAD, convention)
    assert targets.dtype == torch.float32
    assert torch.equal(targets, F.one_hot(LABELS[REAL], VOCABULARY).float())


def test_the_paper_has_a_tenth_and_pytorch_shares_it_among_all():
    targets = smoothed_targets(torch.tensor([2, 0]), 5)
    assert targets.tolist() == [pytest.approx([0.02, 0.02, 0.92, 0.02, 0.02])]


def test_tensor2tensors_convention_is_the_uniform_one_with_another_share():
    ours = smoothed_targets(LABELS, VOCABULARY, EPS, PAD, "tensor2tensor", torch.float64)
    other = smoothed_targets(LABELS, VOCABULARY, EPS * VOCABULARY / (VOCABULARY - 1), PAD, dtype=torch.float64)
    assert largest_difference(ours, other) < 1e-15


# The loss, written out


def pytorchs(logits):
    return F.cross_entropy(
        logits.flatten(0, 1), LABELS.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=EPS
    )


def tensor2tensors(logits):
    """``smoothing_cross_entropy``: cross-entropy with soft targets, minus the least it can be, for all real tokens."""
    confidence, low = 1 - EPS, EPS / (VOCABULARY - 1)
    least = -(confidence * math.log(confidence) + (VOCABULARY - 1) * low * math.log(low + 1e-20))
    soft = F.one_hot(LABELS, VOCABULARY).to(logits.dtype) * (confidence - low) + low
    return ((-(soft * logits.log_softmax(-1)).sum(-1) - least) * REAL).sum()


def opennmts(logits):
    """``LabelSmoothingLoss``: the divergence between a row with a hole at padding, and the log-probabilities."""
    one_hot = torch.full((VOCABULARY,), EPS / (VOCABULARY - 2), dtype=logits.dtype)
    one_hot[PAD] = 0
    rows = one_hot.repeat(LABELS.numel(), 1).scatter(1, LABELS.flatten()[:, None], 1 - EPS)
    rows = rows.masked_fill((LABELS.flatten() == PAD)[:, None], 0)
    return F.kl_div(logits.flatten(0, 1).log_softmax(-1), rows, reduction="sum")


def entropy(convention):
    targets = smoothed_targets(LABELS, VOCABULARY, EPS, PAD, convention, torch.float64)
    return torch.special.entr(targets).sum()


@pytest.mark.parametrize(
    ("convention", "theirs", "constant"),
    [("uniform", pytorchs, False), ("tensor2tensor", tensor2tensors, True), ("opennmt", opennmts, True)],
)
def test_the_loss_is_theirs_but_for_a_constant(convention, theirs, constant):
    logits = normal(BATCH, M, VOCABULARY, seed=4, requires_grad=True)
    ours, other = smoothed_cross_entropy(logits, LABELS, EPS, PAD, convention), theirs(logits)
    assert largest_difference(ours, other + (entropy(convention) if constant else 0)) < TOLERANCE
    [mine], [their] = torch.autograd.grad(ours, logits), torch.autograd.grad(other, logits)
    assert largest_difference(mine, their) < TOLERANCE
    assert mine[~REAL].abs().max() == 0


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_the_least_loss_of_base_is_1_377_nats(convention):
    target = smoothed_targets(torch.tensor([2]), 37_000, convention=convention, dtype=torch.float64)
    assert torch.special.entr(target).sum().item() == pytest.approx(1.377, abs=5e-4)
    logits = target.clamp(min=1e-30).log()
    assert smoothed_cross_entropy(logits, torch.tensor([2]), convention=convention).item() == pytest.approx(
        1.377, abs=5e-4
    )


def test_the_loss_without_padding_or_smoothing_is_the_negative_log_likelihood():
    logits, labels = normal(N, VOCABULARY, seed=4), tokens(N, seed=5)
    expected = -sum(math.log(row.softmax(-1)[label]) for row, label in zip(logits, labels, strict=True))
    assert smoothed_cross_entropy(logits, labels, 0).item() == pytest.approx(expected, rel=1e-12)


# Projection and loss as one


@pytest.mark.parametrize("rows", [1, 3, 8, 100])
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_the_fused_loss_is_the_written_out_one(convention, rows, monkeypatch):
    in_chunks_of(rows, monkeypatch)
    hidden, weight = projection()
    ours = projected_cross_entropy(hidden, weight, LABELS, EPS, PAD, convention)
    expected = smoothed_cross_entropy(hidden @ weight.T, LABELS, EPS, PAD, convention)
    assert ours.shape == ()
    assert largest_difference(ours, expected) < TOLERANCE
    mine, theirs = (torch.autograd.grad(3 * loss, (hidden, weight)) for loss in (ours, expected))
    assert largest_difference(mine[0], theirs[0]) < TOLERANCE
    assert largest_difference(mine[1], theirs[1]) < TOLERANCE
    assert mine[0][~REAL].abs().max() == 0


def test_the_fused_loss_has_the_same_defaults():
    hidden, weight = projection()
    labels = LABELS * REAL  # padding is 0
    assert projected_cross_entropy(hidden, weight, labels).item() == pytest.approx(
        F.cross_entropy(
            (hidden @ weight.T).flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum"
        ).item()
    )
    assert smoothed_cross_entropy(hidden @ weight.T, labels).item() == pytest.approx(
        projected_cross_entropy(hidden, weight, labels).item()
    )


@quick
@given(
    lengths=st.lists(st.integers(0, M), min_size=1, max_size=3),
    eps=st.sampled_from([0.0, 0.1, 0.9]),
    convention=st.sampled_from(CONVENTIONS),
    scale=st.sampled_from([0.0, 1.0, 300.0]),
)
def test_the_fused_loss_is_right_for_any_padding_and_size_of_logits(lengths, eps, convention, scale):
    labels = padded(tokens(len(lengths), M, seed=6), *lengths)
    hidden, weight = normal(len(lengths), M, D_MODEL, seed=7) * scale, normal(VOCABULARY, D_MODEL, seed=8)
    hidden.requires_grad_(), weight.requires_grad_()
    ours = projected_cross_entropy(hidden, weight, labels, eps, PAD, convention)
    expected = smoothed_cross_entropy(hidden @ weight.T, labels, eps, PAD, convention)
    assert ours.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-7)
    for mine, other in zip(*(torch.autograd.grad(x, (hidden, weight)) for x in (ours, expected)), strict=True):
        assert torch.allclose(mine, other, rtol=1e-9, atol=1e-9)


def test_where_all_is_padding_loss_and_gradients_are_0():
    hidden, weight = projection()
    loss = projected_cross_entropy(hidden, weight, torch.full((BATCH, M), PAD), EPS, PAD)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(hidden.grad, torch.zeros_like(hidden))
    assert torch.equal(weight.grad, torch.zeros_like(weight))
    assert smoothed_cross_entropy(hidden @ weight.T, torch.full((BATCH, M), PAD), EPS, PAD).item() == 0


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_gradients_are_those_of_finite_differences(convention):
    hidden, weight = projection()
    loss = partial(projected_cross_entropy, labels=LABELS, eps_ls=EPS, pad_id=PAD, convention=convention)
    assert torch.autograd.gradcheck(lambda h, w: loss(h, w), (hidden, weight), fast_mode=True)


def test_there_are_no_second_derivatives():
    hidden, weight = projection()
    loss = projected_cross_entropy(hidden, weight, LABELS, EPS, PAD)
    with pytest.raises(RuntimeError, match=r"no second derivatives; .* use smoothed_cross_entropy"):
        torch.autograd.grad(loss, hidden, create_graph=True)
    torch.autograd.grad(loss, hidden, retain_graph=True)
    torch.autograd.grad(loss, hidden)


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_side_gets_no_gradient_and_changes_none(frozen):
    inputs = projection()
    expected = torch.autograd.grad(projected_cross_entropy(*inputs, LABELS, EPS, PAD), inputs)
    inputs[frozen].requires_grad_(False)
    projected_cross_entropy(*inputs, LABELS, EPS, PAD).backward()
    assert inputs[frozen].grad is None
    assert torch.equal(inputs[1 - frozen].grad, expected[1 - frozen])


def test_the_inputs_stay_as_they_are():
    hidden, weight = projection()
    before = hidden.detach().clone(), weight.detach().clone(), LABELS.clone()
    projected_cross_entropy(hidden, weight, LABELS, EPS, PAD).backward()
    assert all(torch.equal(x, y) for x, y in zip((hidden, weight, LABELS), before, strict=True))


def test_only_a_loss_that_is_trained_on_costs_gradients():
    hidden, weight = projection()
    product = 2 * int(REAL.sum()) * D_MODEL * VOCABULARY

    def run(inputs):
        return projected_cross_entropy(*inputs, LABELS, EPS, PAD)

    assert product * 3 <= matmul_flops(lambda: run((hidden, weight)).backward()) < product * 3.2
    with torch.no_grad():
        assert product <= matmul_flops(lambda: run((hidden, weight))) < product * 1.1
        assert run((hidden, weight)).grad_fn is None
    assert product <= matmul_flops(lambda: run((hidden.detach(), weight.detach()))) < product * 1.1


def test_the_logits_are_never_held_whole():
    tokens_, d_model, vocab_size = 1009, 17, 32_749
    hidden = normal(tokens_, d_model, dtype=torch.float32, requires_grad=True)
    weight = normal(vocab_size, d_model, seed=1, dtype=torch.float32, requires_grad=True)
    labels = torch.arange(1, tokens_ + 1)
    logits = 4 * tokens_ * vocab_size
    ours = peak_bytes(lambda: projected_cross_entropy(hidden, weight, labels).backward())
    hidden.grad = weight.grad = None
    assert ours < 0.6 * logits

    def unfused():
        (F.cross_entropy(F.linear(hidden, weight), labels, label_smoothing=0.1) * tokens_).backward()

    assert ours < 0.3 * peak_bytes(unfused)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.02), (torch.float16, 0.003)])
@pytest.mark.parametrize("mixed", [True, False])
def test_half_precision_comes_near(dtype, tolerance, mixed):
    exact = [x.detach().requires_grad_() for x in projection()]
    with torch.no_grad():
        exact[1] /= math.sqrt(D_MODEL)
    expected = smoothed_cross_entropy(exact[0] @ exact[1].T, LABELS, EPS, PAD, "opennmt")
    theirs = torch.autograd.grad(expected, exact)
    inputs = [x.detach().to(torch.float32 if mixed else dtype).requires_grad_() for x in exact]
    with torch.autocast("cpu", dtype, enabled=mixed):
        loss = projected_cross_entropy(*inputs, LABELS, EPS, PAD, "opennmt")
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=tolerance)
    assert loss.item() != pytest.approx(expected.item(), rel=1e-9)
    for mine, other in zip(torch.autograd.grad(loss, inputs), theirs, strict=True):
        assert (mine - other).norm() < tolerance * other.norm()
        assert mine.dtype == inputs[0].dtype


def test_autocast_takes_states_and_parameters_of_two_types():
    hidden, weight = projection(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        low = hidden.detach().bfloat16().requires_grad_()
        loss = projected_cross_entropy(low, weight, LABELS, EPS, PAD)
    loss.backward()
    assert (low.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)


LABEL = torch.tensor([2, 3])
HIDDEN, WEIGHT = torch.zeros(2, 5), torch.zeros(7, 5)


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (ValueError, "labels must be from 0 to 6, or pad_id, got 2 to 7", {"labels": torch.tensor([2, 7])}),
        (ValueError, "labels must be from 0 to 6, or pad_id, got -1 to 2", {"labels": torch.tensor([2, -1])}),
        (TypeError, "labels must be a tensor of integers", {"labels": torch.ones(2)}),
        (ValueError, "labels must have the shape of", {"labels": torch.tensor([2, 3, 4])}),
        (ValueError, "labels must have the shape of", {"labels": torch.tensor(2)}),
        (ValueError, "eps_ls is the share .* got 1", {"eps_ls": 1}),
        (ValueError, "eps_ls is the share .* got -0.1", {"eps_ls": -0.1}),
        (TypeError, "eps_ls must be a number", {"eps_ls": "0.1"}),
        (ValueError, "convention must be one of uniform, tensor2tensor, opennmt", {"convention": "harvard"}),
        (ValueError, "pad_id must be a token's id for opennmt", {"convention": "opennmt", "pad_id": 7}),
        (ValueError, "pad_id must be a value that ids of", {"labels": LABEL.to(torch.uint8), "pad_id": -1}),
        (TypeError, "pad_id must be an integer", {"pad_id": 0.0}),
    ],
)
def test_losses_refuse_what_does_not_fit(error, message, call):
    call = {"labels": LABEL, **call}
    for loss in (
        partial(projected_cross_entropy, HIDDEN, WEIGHT),
        partial(smoothed_cross_entropy, torch.zeros(2, 7)),
        partial(smoothed_targets, vocab_size=7),
    ):
        if not (loss.func is smoothed_targets and "shape" in message):
            with pytest.raises(error, match=message):
                loss(**call)


def test_padding_may_be_no_tokens_id_where_nobody_smooths_towards_it():
    labels = torch.tensor([2, -100])
    assert projected_cross_entropy(HIDDEN, WEIGHT, labels, pad_id=-100).item() == pytest.approx(math.log(7))
    assert smoothed_cross_entropy(torch.zeros(2, 7), labels, pad_id=-100).item() == pytest.approx(math.log(7))


@pytest.mark.parametrize(("convention", "least"), [("uniform", 1), ("tensor2tensor", 2), ("opennmt", 3)])
def test_somebody_must_be_left_to_take_the_share(convention, least):
    labels = torch.tensor([0])
    assert smoothed_targets(labels, least, pad_id=least - 1 or 5, convention=convention).shape == (1, least)
    with pytest.raises(ValueError, match="vocab_size must be"):
        smoothed_targets(labels, least - 1, convention=convention)


def test_the_fused_loss_refuses_matrices_that_do_not_fit():
    for error, message, hidden, weight in (
        (ValueError, r"weight must have the shape \(V, d_model\)", HIDDEN, torch.zeros(1, 7, 5)),
        (ValueError, "hidden must have the width 5", torch.zeros(2, 6), WEIGHT),
        (TypeError, "hidden must have the dtype of the parameters", HIDDEN.double(), WEIGHT),
        (TypeError, "hidden must be a floating-point tensor", LABEL, WEIGHT),
        (TypeError, "weight must be a floating-point tensor", HIDDEN, LABEL),
    ):
        with pytest.raises(error, match=message):
            projected_cross_entropy(hidden, weight, LABEL)
    with pytest.raises(TypeError, match="logits must be a floating-point tensor"):
        smoothed_cross_entropy(LABEL, LABEL)


# The gradients of one step


def with_gradients(*values):
    made = [nn.Parameter(torch.zeros(len(value), dtype=torch.float64)) for value in values]
    for parameter, value in zip(made, values, strict=True):
        parameter.grad = torch.tensor(value, dtype=torch.float64)
    return made


def test_clipping_scales_all_gradients_by_one_factor():
    parameters = [*with_gradients([3.0, 0.0], [-12.0], [4.0]), nn.Parameter(torch.zeros(2))]
    assert clip(iter(parameters), 6.5) == 13
    assert [x.grad.tolist() for x in parameters[:3]] == [[1.5, 0], [-6], [2]]
    assert clip(parameters, 1) == 6.5


@pytest.mark.parametrize("most", [5, 5.1, math.inf])
def test_what_is_small_enough_is_not_clipped(most):
    parameters = with_gradients([3.0], [4.0])
    assert clip(parameters, most) == 5
    assert [x.grad.item() for x in parameters] == [3, 4]


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_gradients_that_are_no_numbers_show_in_the_norm_and_stay(bad):
    parameters = with_gradients([3.0], [bad])
    assert not math.isfinite(clip(parameters, 1))
    assert parameters[0].grad.item() == 3


def test_clipping_nothing_is_no_error():
    assert clip([nn.Parameter(torch.zeros(2))], 1) == 0
    assert clip([], 1) == 0


def test_clipping_refuses_what_it_cannot_take():
    for error, message, parameters, most in (
        (TypeError, r"model.parameters\(\), got Linear", nn.Linear(2, 3), 1),
        (TypeError, "parameters must be several", torch.zeros(3), 1),
        (ValueError, "max_norm must be above 0", [], 0),
        (ValueError, "max_norm must be above 0|finite", [], math.nan),
        (TypeError, "max_norm must be a number", [], "1"),
    ):
        with pytest.raises(error, match=message):
            clip(parameters, most)
