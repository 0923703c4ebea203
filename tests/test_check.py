"""A checker lets right answers pass, refuses subtly wrong ones, and recognises the usual mistakes.

Every wrong function below is written out as a reader would write it, not put together from the checker's own parts.
"""

import math
import re

import numpy as np
import pytest
import torch

from annotated_transformer import attention, check, masks
from annotated_transformer.feed_forward import FeedForward


def scores(query, key):
    return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])


def written_out(query, key, value, mask):
    """What a careful reader writes."""
    s = scores(query, key)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    return s.softmax(-1).nan_to_num() @ value


def with_exp(query, key, value, mask):
    s = scores(query, key)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    e = (s - s.amax(-1, keepdim=True).clamp(min=-1e300)).exp()
    return e / e.sum(-1, keepdim=True).clamp(min=1e-300) @ value


def in_a_loop(query, key, value, mask):
    if query.ndim > 2:
        broadcast = [None] * len(query) if mask is None else mask.expand(*query.shape[:-1], key.shape[-2])
        return torch.stack([in_a_loop(*one) for one in zip(query, key, value, broadcast, strict=True)])
    rows = []
    for i, q in enumerate(query):
        e = {j: q @ k / math.sqrt(len(q)) for j, k in enumerate(key) if mask is None or mask[i, j]}
        top = max(e.values(), default=0)
        total = sum((s - top).exp() for s in e.values())
        rows.append(sum(((s - top).exp() / total * value[j] for j, s in e.items()), torch.zeros_like(value[0])))
    return torch.stack(rows)


@pytest.mark.parametrize("function", [attention.attention, attention.fused_attention, written_out, with_exp, in_a_loop])
def test_right_attentions_pass(function):
    report = check.attention(function)
    assert report.ok, report
    assert repr(report) == "✓ attention: 8 of 8 cases agree in float64, gradients too."


def no_scale(query, key, value, mask):
    return written_out(query * math.sqrt(query.shape[-1]), key, value, mask)


def scale_d_k(query, key, value, mask):
    return written_out(query / math.sqrt(query.shape[-1]), key, value, mask)


def scale_times(query, key, value, mask):
    return written_out(query * query.shape[-1], key, value, mask)


def scale_n(query, key, value, mask):
    s = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-2])
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    return s.softmax(-1).nan_to_num() @ value


def over_queries(query, key, value, mask):
    s = scores(query, key)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    w = s.softmax(-2)
    return (w if mask is None else w.masked_fill(~mask, 0.0)) @ value


def over_dim_1(query, key, value, mask):
    s = scores(query, key)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    w = s.softmax(1)
    return (w if mask is None else w.masked_fill(~mask, 0.0)) @ value


def inverted(query, key, value, mask):
    return written_out(query, key, value, None if mask is None else ~mask)


def nan_rows(query, key, value, mask):
    s = scores(query, key)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    return s.softmax(-1) @ value


def large_negative(query, key, value, mask):
    s = scores(query, key)
    if mask is not None:
        s = s.masked_fill(mask == 0, -1e9)
    return s.softmax(-1) @ value


def ignored(query, key, value, mask):
    return scores(query, key).softmax(-1) @ value


def after_softmax(query, key, value, mask):
    w = scores(query, key).softmax(-1)
    return (w if mask is None else w * mask) @ value


def multiplied(query, key, value, mask):
    s = scores(query, key)
    return (s if mask is None else s * mask).softmax(-1) @ value


def one_to_the_minus_ten(query, key, value, mask):
    s = scores(query, key)
    if mask is not None:
        s = s.masked_fill(~mask, 1**-10)
    return s.softmax(-1) @ value


def added(query, key, value, mask):
    s = scores(query, key)
    return (s if mask is None else s + mask.double()).softmax(-1) @ value


def overflows(query, key, value, mask):
    s = scores(query, key)
    e = s.exp() if mask is None else s.exp().masked_fill(~mask, 0.0)
    w = e / e.sum(-1, keepdim=True)
    return (w if mask is None else w.masked_fill(~mask, 0.0)) @ value


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_scale, "the scores are not divided by √d_k."),
        (scale_d_k, "the scores are divided by d_k, not by its root."),
        (scale_times, "the scores are multiplied by √d_k, not divided."),
        (scale_n, "the scores are divided by the root of the number of keys"),
        (over_queries, "the softmax runs over the queries (dim=-2)"),
        (over_dim_1, "the softmax runs over dim=1"),
        (inverted, "the mask is inverted: True means “may attend”."),
        (nan_rows, "a query that may attend to no key gives nan"),
        (large_negative, "a query that may attend to no key averages all values"),
        (ignored, "the mask is ignored."),
        (after_softmax, "the mask comes after the softmax"),
        (multiplied, "masked scores are set to 0, or multiplied by 0"),
        (one_to_the_minus_ten, "masked scores are filled with 1, perhaps as 1 ** -10"),
        (added, "the mask is added to the scores as 0 and 1"),
        (overflows, "exp() overflows for large scores"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_usual_mistakes_are_recognised(function, message):
    report = check.attention(function)
    assert not report.ok
    assert [line for line in report.lines if line.startswith(f"It looks like this: {message}")], report
    assert not [line for line in report.lines if line.startswith("And: ")]


def test_two_mistakes_are_told_apart():
    report = check.attention(lambda q, k, v, mask: inverted(q * math.sqrt(q.shape[-1]), k, v, mask))
    assert report.lines[-2:] == (
        "It looks like this: the scores are not divided by √d_k.",
        "And: the mask is inverted: True means “may attend”.",
    )


def test_rows_without_a_key_may_be_left_out():
    assert check.attention(nan_rows, empty_rows=False).ok
    assert check.attention(large_negative, empty_rows=False).ok
    assert not check.attention(ignored, empty_rows=False).ok


def wrong(change):
    return lambda *arguments: change(attention.attention(*arguments), *arguments)


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (wrong(lambda out, *_: out * (1 + 1e-6)), "the largest difference is about 1e-06"),
        (wrong(lambda out, *_: out.flip(-1)), "Its values differ in 60 of 65 elements"),
        (wrong(lambda out, *_: out.transpose(-2, -1)), r"It has the shape|shape \(13, 5\); \(5, 13\) is expected"),
        (wrong(lambda out, *_: out.sum()), r"the shape \(\); \(5, 13\) is expected"),
        (wrong(lambda out, *_: None), "returns None: is the return missing"),
        (wrong(lambda out, *_: (out, out)), "returns 2 things; one tensor is expected"),
        (wrong(lambda out, *_: out.tolist()), "returns list; a tensor is expected"),
        (wrong(lambda out, *_: out.detach().numpy()), "returns ndarray; a tensor is expected"),
        (wrong(lambda out, *_: out > 0), "is bool; float64 is expected"),
        (wrong(lambda out, *_: out.float()), "values agree, but they are float32; float64 is expected"),
        (wrong(lambda out, *_: out / 0), "infinite"),
        (wrong(lambda out, *_: out * math.nan), "holds nan in all elements"),
        (wrong(lambda out, query, *_: (out, query.mul_(2))[0]), "changes its input query in place"),
        (wrong(lambda out, *_: 1 / 0), "raised ZeroDivisionError: division by zero"),
        (lambda query: query, r"raised TypeError: .*takes 1 positional argument but 4"),
        (lambda *_: (_ for _ in ()).throw(ValueError), "raised ValueError: without a message"),
        (wrong(lambda out, *_: torch.dropout(out, 0.1, True)), "two calls with the same input give different results"),
        (wrong(lambda out, *_: out.detach()), "No gradient reaches query"),
        (lambda q, k, v, mask: attention.attention(q, k.detach(), v, mask), "No gradient reaches key"),
        (lambda q, k, v, mask: attention.attention(q, k, v + 0 * v.detach().exp() * v.sin(), mask), None),
        (
            wrong(lambda out, query, *_: out + query.mean() - query.mean().detach()),
            "gradient for query has other values",
        ),
        (wrong(lambda out, query, *_: out + 0 * (0 * query.sum()).sqrt()), "gradient for query holds nan"),
        (wrong(lambda out, *_: Broken.apply(out)), "backward pass raised RuntimeError: broken"),
        (wrong(lambda out, *_: (row for row in out)), "returns generator; a tensor is expected"),
        (3, "must be a function, got int 3"),
        (None, "must be a function, got NoneType None"),
    ],
)
def test_everything_else_is_told(function, line):
    report = check.attention(function)
    if line is None:  # odd, but right
        assert report.ok, report
    else:
        assert not report.ok
        assert repr(report).startswith("✗ attention")
        assert re.search(line, repr(report)), report


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("broken")


def test_the_report_says_where_it_was_seen_and_where_else():
    lines = check.attention(ignored).lines
    assert lines[0] == "attention: 4 of 8 cases agree."
    assert lines[2] == (
        "Seen with: causal mask; query (2, 3, 7, 11), key (2, 3, 7, 11), value (2, 3, 7, 13), mask (7, 7)"
    )
    assert lines[3] == (
        "Also wrong: padding mask; a mask of its own for every head; a query that may attend to no key."
    )


@pytest.mark.parametrize("function", [no_scale, nan_rows, in_a_loop])
def test_the_report_is_the_same_every_time(function):
    torch.manual_seed(1)
    first = repr(check.attention(function))
    torch.manual_seed(2)
    assert repr(check.attention(function)) == first


def test_checking_leaves_the_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    check.attention(attention.attention)
    assert torch.equal(torch.rand(1), expected)


def test_gradients_are_checked_inside_no_grad_too():
    with torch.no_grad():
        assert check.attention(written_out).ok
        assert not check.attention(wrong(lambda out, *_: out.detach())).ok


def test_a_reader_can_still_interrupt():
    def stopped(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check.attention(stopped)


class TestAttentionWeights:
    def test_right(self):
        assert check.attention_weights(attention.attention_weights).ok

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda q, k, m: attention.attention_weights(q, k, m, scale=1.0), "not divided by √d_k"),
            (lambda q, k, m: scores(q, k).softmax(-1), "the mask is ignored"),
            (lambda q, k, m: attention.attention_weights(q, k, None if m is None else ~m), "inverted"),
        ],
    )
    def test_wrong(self, function, message):
        report = check.attention_weights(function)
        assert not report.ok
        assert message in report.lines[-1]

    def test_weights_are_asked_for_and_not_scores(self):
        assert not check.attention_weights(lambda q, k, m: scores(q, k)).ok


class TestCausalMask:
    @pytest.mark.parametrize(
        "function",
        [
            masks.causal_mask,
            lambda n: torch.ones(n, n).tril().bool(),
            lambda n: torch.tensor([[j <= i for j in range(n)] for i in range(n)]),
            lambda n: ~torch.ones(n, n, dtype=torch.bool).triu(1),
        ],
    )
    def test_right(self, function):
        assert repr(check.causal_mask(function)) == "✓ causal_mask: 5 of 5 cases agree."

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda n: torch.ones(n, n).triu(1).bool(), "the mask is inverted"),
            (lambda n: torch.ones(n, n).tril(-1).bool(), "the diagonal is left out"),
            (lambda n: torch.ones(n, n).triu().bool(), "rows and columns are swapped"),
            (lambda n: torch.ones(n, n).tril(1).bool(), "it reaches one position into the future"),
            (lambda n: torch.ones(n, n).bool(), "nothing is masked"),
            (lambda n: torch.ones(n, n).tril(), "it holds 1 and 0"),
            (lambda n: torch.full((n, n), -math.inf).triu(1), "it holds 0 and minus infinity"),
        ],
    )
    def test_wrong(self, function, message):
        report = check.causal_mask(function)
        assert not report.ok
        assert report.lines[-1].startswith(f"It looks like this: {message}")

    def test_a_wrong_shape(self):
        report = check.causal_mask(lambda n: torch.ones(1, n, n).tril().bool())
        assert "Its result has the shape (1, 1, 1); (1, 1) is expected." in report.lines
        assert "Seen with: n = 1" in report.lines


class TestFeedForward:
    @staticmethod
    def module(x, w_1, b_1, w_2, b_2):
        ff = FeedForward(*w_1.shape).double()
        tensors = {"w_1.weight": w_1.T, "w_1.bias": b_1, "w_2.weight": w_2.T, "w_2.bias": b_2}
        return torch.func.functional_call(ff, tensors, (x,))

    def test_the_package_passes(self):
        assert repr(check.feed_forward(self.module)) == "✓ feed_forward: 3 of 3 cases agree in float64, gradients too."

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda x, w, b, v, c: torch.einsum("...d,df->...f", x, w @ v) + b @ v + c, "no ReLU between"),
            (lambda x, w, b, v, c: torch.clamp((x @ w + b) @ v + c, min=0), "after the second product"),
            (lambda x, w, b, v, c: torch.clamp(torch.clamp(x @ w + b, min=0) @ v + c, min=0), "a second ReLU"),
            (lambda x, w, b, v, c: (torch.clamp(x @ w, min=0) + b) @ v + c, "before b_1 is added"),
            (lambda x, w, b, v, c: torch.clamp(x @ w, min=0) @ v + c, "b_1 is missing"),
            (lambda x, w, b, v, c: torch.clamp(x @ w + b, min=0) @ v, "b_2 is missing"),
            (lambda x, w, b, v, c: x + torch.clamp(x @ w + b, min=0) @ v + c, "x is added"),
            (lambda x, w, b, v, c: torch.softmax(x @ w + b, -1) @ v + c, "a softmax stands"),
            (lambda x, w, b, v, c: torch.clamp(x @ w.T + b, min=0) @ v.T + c, "It raised RuntimeError"),
        ],
    )
    def test_usual_mistakes_are_recognised(self, function, message):
        report = check.feed_forward(function)
        assert not report
        assert message in repr(report)


class TestEqual:
    def test_results_need_not_be_tensors(self):
        cases = {"words": {"text": "b a"}, "none": {"text": ""}}
        assert check.equal(lambda text: text.split(), str.split, cases).ok
        report = check.equal(
            lambda text: sorted(text.split()), str.split, cases, mistakes={"sorted!": lambda t: ["a", "b"]}
        )
        assert report.lines[:2] == (
            "your function: 1 of 2 cases agree.",
            "In item 0: It returns str 'a'; str 'b' is expected.",
        )
        assert "sorted!" not in repr(report)  # on the empty text the mistake would have shown something else

    def test_numbers_are_compared_with_tolerance(self):
        cases = {"two": {"x": 2.0}}
        assert check.equal(lambda x: x**0.5 + 1e-15, math.sqrt, cases).ok
        assert check.equal(lambda x: int(x), lambda x: x, cases).ok
        report = check.equal(lambda x: x, math.sqrt, cases)
        assert report.lines[1] == "It returns 2; 1.41 is expected."

    def test_several_tensors(self):
        cases = {"x": {"x": torch.ones(3)}}
        assert check.equal(lambda x: (x, 2 * x), lambda x: (x, x + x), cases).ok
        assert not check.equal(lambda x: (x, 3 * x), lambda x: (x, x + x), cases).ok
        assert not check.equal(lambda x: [x, 2 * x], lambda x: (x, x + x), cases).ok
        assert not check.equal(lambda x: (x,), lambda x: (x, x + x), cases).ok

    def test_lists_that_are_changed_are_noticed(self):
        report = check.equal(lambda x: x.sort() or x, sorted, {"list": {"x": [2, 1]}})
        assert "It changes its input x in place." in report.lines

    def test_nan_is_right_where_it_is_expected(self):
        cases = {"x": {"x": torch.tensor([-1.0, 4.0])}}
        assert check.equal(torch.sqrt, torch.sqrt, cases).ok
        assert not check.equal(lambda x: x.abs().sqrt(), torch.sqrt, cases).ok

    def test_a_mistake_that_raises_is_recognised_too(self):
        cases = {"x": {"x": torch.ones(2, 3)}}
        report = check.equal(lambda x: x @ x, lambda x: x @ x.T, cases, mistakes={"no transpose.": lambda x: x @ x})
        assert report.lines[-1] == "It looks like this: no transpose."

    def test_names(self):
        assert check.equal(abs, abs, {"one": {"x": -1}}, name="my_abs").lines == ("my_abs: 1 of 1 cases agree.",)

    def test_no_cases(self):
        with pytest.raises(ValueError, match="at least one case"):
            check.equal(abs, abs, {})

    def test_a_case_that_the_expected_function_cannot_handle(self):
        with pytest.raises(ValueError, match="expected must handle every case, but it fails on 'word'"):
            check.equal(abs, abs, {"number": {"x": 1}, "word": {"x": "a"}})


class TestThatAndNumber:
    @pytest.mark.parametrize("condition", [True, 1, np.True_, torch.tensor([True, True]), np.array([1, 2])])
    def test_what_holds(self, condition):
        report = check.that("the weights sum to 1", condition, "look at the axis")
        assert report
        assert repr(report) == "✓ the weights sum to 1"

    @pytest.mark.parametrize("condition", [False, None, torch.tensor([True, False]), np.array([[0], [1]])])
    def test_what_does_not(self, condition):
        report = check.that("the weights sum to 1", condition, "look at the axis")
        assert not report
        assert repr(report) == "✗ not yet: the weights sum to 1\n  look at the axis"
        assert repr(check.that("it holds", condition)) == "✗ not yet: it holds"

    @pytest.mark.parametrize("answer", [64, 64.0, torch.tensor(64), np.float32(64), 64 * (1 + 1e-9)])
    def test_the_right_number(self, answer):
        assert repr(check.number(answer, 64)) == "✓ that is the number."

    def test_a_wrong_number_is_not_given_away(self):
        report = check.number(512, 64, mistakes={"that is d_model.": 512.0})
        assert repr(report) == "✗ 512 is not the number.\n  It looks like this: that is d_model."
        assert "64" not in repr(check.number(3, 64))
        assert not check.number(math.nan, 64)
        assert not check.number(64.01, 64)
        assert check.number(64.01, 64, tolerance=1e-3)
        assert check.number(0, 0)

    @pytest.mark.parametrize("answer", ["x", None, [1, 2], torch.ones(2), lambda: 64])
    def test_what_is_no_number(self, answer):
        assert check.number(answer, 64).lines[0].startswith("a number is asked for, got ")
