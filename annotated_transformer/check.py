"""What the exercises' checkers stand on: is the reader's function right, and if not, which known mistake is it?

A checker runs the reader's function beside the package's, in float64, on inputs whose sizes are different primes, so
that no swapped axis goes unnoticed. It returns a ``Report`` that prints the same text on every machine. It never raises
for what the reader wrote: an exception in the reader's function is a finding like any other.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import attention as reference
from . import masks

__all__ = [
    "Cases",
    "Report",
    "attention",
    "attention_weights",
    "causal_mask",
    "equal",
    "feed_forward",
    "number",
    "that",
]

Function = Callable[..., Any]
Cases = Mapping[str, Mapping[str, Any]]
"""Inputs by name: for each case the arguments by name, passed in this order by position."""

_TOLERANCE = 1e-9  # of what is computed in float64
_SINGLE = 1e-4  # of what came out in a lower precision, where only its precision is wrong


@dataclass(frozen=True, repr=False)
class Report:
    """What a checker found; it prints as text, and is true where all is right.

    Attributes:
        ok: Whether the reader's answer is right.
        lines: What the reader is told; the first line holds the verdict.
    """

    ok: bool
    lines: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        first, *others = self.lines
        return "\n".join([f"{'✓' if self.ok else '✗'} {first}", *(f"  {line}" for line in others)])


def that(name: str, condition: object, hint: str = "") -> Report:
    """Report whether something holds.

    Args:
        name: What should hold, as a sentence.
        condition: What is tested for truth; a tensor or array with more than one element must hold everywhere.
        hint: What a reader should look at where it does not hold.
    """
    holds = bool(condition.all()) if hasattr(condition, "all") else bool(condition)
    return Report(holds, (name,) if holds else (f"not yet: {name}", *([hint] if hint else [])))


def number(
    answer: object, expected: float, *, mistakes: Mapping[str, float] | None = None, tolerance: float = 1e-6
) -> Report:
    """Report whether a number that the reader worked out is the expected one, without giving it away.

    Args:
        answer: The reader's number; a tensor or array with one element will do.
        expected: The right one.
        mistakes: For each known mistake, told in a sentence, the number it leads to.
        tolerance: Relative difference that is let pass.
    """

    def close(value: float) -> bool:
        return math.isclose(given, value, rel_tol=tolerance, abs_tol=tolerance * tolerance)

    try:
        given = float(answer)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return Report(False, (f"a number is asked for, got {_describe(answer)}.",))
    if close(expected):
        return Report(True, ("that is the number.",))
    known = [f"It looks like this: {message}" for message, value in (mistakes or {}).items() if close(value)]
    return Report(False, (f"{given:g} is not the number.", *known[:1]))


def equal(
    function: object,
    expected: Function,
    cases: Cases,
    *,
    mistakes: Mapping[str, Function] | None = None,
    gradients: bool = False,
    name: str = "your function",
) -> Report:
    """Report whether a reader's function does what the expected one does, on every case.

    Args:
        function: The reader's.
        expected: The package's.
        cases: Inputs by name. The reader's function is given copies, by position.
        mistakes: For each known mistake, told in a sentence, a function that makes it. The reader's function is said to
            make the first one whose results agree with its own on every case.
        gradients: Whether the gradients for every floating-point input must agree too.
        name: What the report calls the reader's function.

    Raises:
        ValueError: ``cases`` is empty, or ``expected`` itself raises on one of them.
    """
    if not cases:
        raise ValueError("cases must hold at least one case, got none.")
    if not callable(function):
        return Report(False, (f"{name} must be a function, got {_describe(function)}.",))
    right = {case: _Outcome.of(expected, inputs) for case, inputs in cases.items()}
    for case, outcome in right.items():
        if outcome.error is not None:
            raise ValueError(f"expected must handle every case, but it fails on {case!r}.") from outcome.error
    found = {case: _Outcome.of(function, inputs) for case, inputs in cases.items()}
    for case, inputs in cases.items():
        comparable = isinstance(found[case].result, type(right[case].result))
        if comparable and not found[case].same(_Outcome.of(function, inputs)):
            unsteady = f"{name}: two calls with the same input give different results."
            return Report(False, (unsteady, _where(case, inputs)))
    problems = {case: problem for case in cases if (problem := found[case].problem(right[case]))}
    agree = f"{len(cases) - len(problems)} of {len(cases)} cases agree"
    if problems:
        lines = [f"{name}: {agree}.", *_first_problem(problems, cases)]
        for message, mistaken in (mistakes or {}).items():
            if all(found[case].same(_Outcome.of(mistaken, inputs)) for case, inputs in cases.items()):
                lines += f"It looks like this: {message}".splitlines()
                break
        return Report(False, tuple(lines))
    for case, inputs in cases.items():
        if gradients and (problem := _gradient_problem(function, expected, inputs)):
            return Report(False, (f"{name}: {agree}, but not their gradients.", problem, _where(case, inputs)))
    precise = any(_is_double(outcome.result) for outcome in right.values())
    return Report(
        True, (f"{name}: {agree}{' in float64' if precise else ''}{', gradients too' if gradients else ''}.",)
    )


def attention(function: object, *, empty_rows: bool = True) -> Report:
    """Check a reader's ``attention(query, key, value, mask)`` (Equation 1) against the package's, gradients included.

    Args:
        function: The reader's; ``mask`` is None or boolean, True = may attend.
        empty_rows: Whether a query that may attend to no key must give zeros.
    """
    return _check_attention(function, reference.attention, "attention", empty_rows)


def attention_weights(function: object, *, empty_rows: bool = True) -> Report:
    """Check a reader's ``attention_weights(query, key, mask)`` against the package's, gradients included.

    Args:
        function: The reader's; ``mask`` is None or boolean, True = may attend.
        empty_rows: Whether a query that may attend to no key must give zeros.
    """
    return _check_attention(function, reference.attention_weights, "attention_weights", empty_rows)


def causal_mask(function: object) -> Report:
    """Check a reader's ``causal_mask(n)``: boolean, ``(n, n)``, True on and below the diagonal.

    Args:
        function: The reader's.
    """

    def square(n: int) -> Tensor:
        return torch.ones(n, n, dtype=torch.bool)

    mistakes: dict[str, Function] = {
        "the mask is inverted: True means “may attend”, and here it marks the future.": lambda n: square(n).triu(1),
        "the diagonal is left out: a position may attend to itself.": lambda n: square(n).tril(-1),
        "rows and columns are swapped: row t must allow the keys up to t, not those from t on.": lambda n: square(
            n
        ).triu(),
        "it reaches one position into the future: the diagonal is the last that is allowed.": lambda n: square(n).tril(
            1
        ),
        "nothing is masked.": square,
        "it holds 1 and 0; make them booleans with .bool().": lambda n: square(n).tril().long(),
        "it holds 0 and minus infinity, to be added to scores; here True and False are asked for.": lambda n: (
            masks.additive_mask(square(n).tril())
        ),
    }
    cases = {f"n = {n}": {"n": n} for n in (1, 2, 3, 5, 7)}
    return equal(function, masks.causal_mask, cases, mistakes=mistakes, name="causal_mask")


def feed_forward(function: object) -> Report:
    """Check a reader's ``feed_forward(x, w_1, b_1, w_2, b_2)`` against Equation 2 (section 3.3), gradients included.

    Args:
        function: The reader's; ``x`` is ``(..., d_model)``, ``w_1`` ``(d_model, d_ff)``, ``w_2`` ``(d_ff, d_model)``.
    """

    def right(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor) -> Tensor:
        return (x @ w_1 + b_1).relu() @ w_2 + b_2

    mistakes: dict[str, Function] = {
        "there is no ReLU between the two products.": lambda x, w_1, b_1, w_2, b_2: (x @ w_1 + b_1) @ w_2 + b_2,
        "the ReLU comes after the second product; it belongs between the two.": lambda x, w_1, b_1, w_2, b_2: (
            (x @ w_1 + b_1) @ w_2 + b_2
        ).relu(),
        "there is a second ReLU, at the end.": lambda *inputs: right(*inputs).relu(),
        "the ReLU comes before b_1 is added.": lambda x, w_1, b_1, w_2, b_2: ((x @ w_1).relu() + b_1) @ w_2 + b_2,
        "b_1 is missing.": lambda x, w_1, b_1, w_2, b_2: (x @ w_1).relu() @ w_2 + b_2,
        "b_2 is missing.": lambda x, w_1, b_1, w_2, b_2: (x @ w_1 + b_1).relu() @ w_2,
        "x is added; the residual connection is not part of Equation 2.": lambda x, *others: x + right(x, *others),
        "a softmax stands where the ReLU should.": lambda x, w_1, b_1, w_2, b_2: (
            (x @ w_1 + b_1).softmax(-1) @ w_2 + b_2
        ),
    }
    generator = torch.Generator().manual_seed(0)

    def case(*leading: int) -> dict[str, Tensor]:
        sizes = {"x": (*leading, 7), "w_1": (7, 11), "b_1": (11,), "w_2": (11, 7), "b_2": (7,)}
        return {name: torch.randn(size, dtype=torch.float64, generator=generator) for name, size in sizes.items()}

    cases = {"one position": case(), "one sentence": case(5), "a batch": case(3, 5)}
    return equal(function, right, cases, mistakes=mistakes, gradients=True, name="feed_forward")


# Wrong attentions, put together from the ways in which each part goes wrong; "" is the right way.

_SCALES: dict[str, Callable[[int, int], float]] = {
    "": lambda d_k, n_k: d_k**-0.5,
    "the scores are not divided by √d_k": lambda d_k, n_k: 1.0,
    "the scores are divided by d_k, not by its root": lambda d_k, n_k: 1 / d_k,
    "the scores are multiplied by √d_k, not divided": lambda d_k, n_k: d_k**0.5,
    "the scores are divided by the root of the number of keys, shape[-2]; d_k is shape[-1]": lambda d_k, n_k: n_k**-0.5,
}
_AXES: dict[str, int] = {
    "": -1,
    "the softmax runs over the queries (dim=-2): each column sums to 1, and each row should": -2,
    "the softmax runs over dim=0; it should run over the keys, dim=-1": 0,
    "the softmax runs over dim=1; it should run over the keys, dim=-1, whatever axes come before": 1,
}
_SENSES: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda mask: mask,
    "the mask is inverted: True means “may attend”": lambda mask: ~mask,
}
_OnMask = Callable[[Tensor, Tensor], Tensor]


def _fill(number: float) -> _OnMask:
    return lambda scores, mask: scores.masked_fill(~mask, number)


def _keep(scores: Tensor, mask: Tensor) -> Tensor:
    return scores


_MASKINGS: dict[str, tuple[_OnMask, _OnMask]] = {  # what the mask does before and after the softmax
    "": (_fill(-math.inf), _fill(0.0)),
    "a query that may attend to no key gives nan, since its softmax is 0/0; fill its weights with zeros": (
        _fill(-math.inf),
        _keep,
    ),
    "a query that may attend to no key averages all values, since its scores are all the same large negative number; "
    "fill its weights with zeros": (_fill(-1e30), _keep),
    "the mask is ignored": (_keep, _keep),
    "the mask comes after the softmax, so the weights that are left do not sum to 1": (_keep, _fill(0.0)),
    "masked scores are set to 0, or multiplied by 0; exp(0) is 1, so masked keys keep a weight": (_fill(0.0), _keep),
    "masked scores are filled with 1, perhaps as 1 ** -10; they need minus infinity": (_fill(1.0), _keep),
    "the mask is added to the scores as 0 and 1; masked scores need minus infinity": (torch.add, _keep),
}
_SOFTMAXES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "": torch.softmax,
    "exp() overflows for large scores; subtract each row's largest score first, or call softmax": lambda scores, dim: (
        scores.exp() / scores.exp().sum(dim, keepdim=True)
    ),
}


def _wrong_attentions(with_value: bool) -> dict[str, Function]:
    """For every combination of up to three mistakes its description and a function that makes them, simplest first."""
    wrong: list[tuple[list[str], Function]] = []
    for parts in itertools.product(*(part.items() for part in (_SCALES, _AXES, _SENSES, _MASKINGS, _SOFTMAXES))):
        messages = [message for message, _ in parts if message]
        if 1 <= len(messages) <= 3:
            wrong.append((messages, _wrong_attention(*(way for _, way in parts), with_value=with_value)))
    wrong.sort(key=lambda entry: len(entry[0]))
    return {".\nAnd: ".join(messages) + ".": function for messages, function in wrong}


def _wrong_attention(scale: Any, dim: Any, sense: Any, masking: Any, softmax: Any, *, with_value: bool) -> Function:
    before, after = masking

    def weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Any:
        scores = query @ key.transpose(-2, -1) * scale(query.shape[-1], key.shape[-2])
        if mask is None:
            return softmax(scores, dim)
        mask = sense(mask)
        return after(softmax(before(scores, mask), dim), mask)

    def output(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Any:
        return weights(query, key, mask) @ value

    return output if with_value else weights


def _check_attention(function: object, expected: Function, name: str, empty_rows: bool) -> Report:
    with_value = name == "attention"
    cases = {
        case: {argument: tensor for argument, tensor in inputs.items() if with_value or argument != "value"}
        for case, inputs in _attention_cases(empty_rows).items()
    }
    return equal(function, expected, cases, mistakes=_wrong_attentions(with_value), gradients=True, name=name)


def _attention_cases(empty_rows: bool) -> Cases:
    """Queries, keys, values and masks of every kind an attention has to serve."""
    generator = torch.Generator().manual_seed(0)

    def case(*batch: int, n_q: int = 5, n_k: int = 7, mask: Tensor | None = None, size: float = 1.0) -> dict[str, Any]:
        def normal(n: int, d: int) -> Tensor:
            return torch.randn(*batch, n, d, dtype=torch.float64, generator=generator)

        return {"query": size * normal(n_q, 11), "key": normal(n_k, 11), "value": normal(n_k, 13), "mask": mask}

    lengths = torch.tensor([7, 4])
    padding = (torch.arange(7) < lengths[:, None])[:, None, None, :]
    some = torch.rand(2, 3, 5, 7, generator=generator) < 0.6
    some[..., 2] = True  # every query may attend to one key at least
    empty = some & (torch.arange(5) != 3)[:, None]
    cases = {
        "one sequence without a mask": case(),
        "a batch without a mask": case(2),
        "batch and heads without a mask": case(2, 3),
        "causal mask": case(2, 3, n_q=7, mask=masks.causal_mask(7)),
        "padding mask": case(2, 3, mask=padding),
        "a mask of its own for every head": case(2, 3, mask=some),
        "scores in the thousands": case(2, 3, size=1000.0),
    }
    return cases | ({"a query that may attend to no key": case(2, 3, mask=empty)} if empty_rows else {})


# Running a function, and saying how its result differs.


@dataclass(frozen=True)
class _Outcome:
    """What one call gave: a result, or an exception; and the inputs that it changed."""

    result: Any = None
    error: Exception | None = None
    changed: tuple[str, ...] = ()

    @staticmethod
    def of(function: Function, inputs: Mapping[str, Any]) -> _Outcome:
        copies = copy.deepcopy(dict(inputs))
        try:
            result = function(*copies.values())
        except Exception as error:
            return _Outcome(error=error)
        changed = tuple(name for name, value in inputs.items() if _difference(copies[name], value))
        return _Outcome(result, changed=changed)

    def problem(self, right: _Outcome) -> str:
        """How this outcome is not right, as a sentence; empty where it is."""
        if self.error is not None:
            message = (str(self.error).strip().splitlines() or ["without a message"])[0]
            return f"It raised {type(self.error).__name__}: {message}"
        if difference := _difference(self.result, right.result):
            return difference
        return f"It changes its input {' and '.join(self.changed)} in place." if self.changed else ""

    def same(self, other: _Outcome) -> bool:
        """Whether two calls ended alike, the precision apart."""
        if self.error is not None or other.error is not None:
            return type(self.error) is type(other.error)
        return self.changed == other.changed and not _difference(self.result, other.result, precision=False)


def _difference(result: Any, right: Any, precision: bool = True) -> str:
    """How a result differs from the right one, as a sentence; empty where it does not."""
    if result is None and right is not None:
        return "It returns None: is the return missing?"
    if isinstance(right, tuple | list) and isinstance(result, type(right)):
        if len(result) != len(right):
            return f"It returns {len(result)} things; {len(right)} are expected."
        found = (_difference(mine, theirs, precision) for mine, theirs in zip(result, right, strict=True))
        return next((f"In item {index}: {difference}" for index, difference in enumerate(found) if difference), "")
    if isinstance(right, float) and isinstance(result, int | float):
        same = math.isclose(result, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        return "" if same else f"It returns {result:.3g}; {right:.3g} is expected."
    if not isinstance(right, Tensor):
        same = type(result) is type(right) and bool(result == right)
        return "" if same else f"It returns {_describe(result)}; {_describe(right)} is expected."
    if isinstance(result, tuple) and result and isinstance(result[0], Tensor):
        return f"It returns {len(result)} things; one tensor is expected."
    if not isinstance(result, Tensor):
        return f"It returns {_describe(result)}; a tensor is expected."
    if result.shape != right.shape:
        return f"Its result has the shape {tuple(result.shape)}; {tuple(right.shape)} is expected."
    if (result.dtype == torch.bool) != (right.dtype == torch.bool) or result.is_complex() != right.is_complex():
        return f"Its result is {_dtype(result)}; {_dtype(right)} is expected."
    return _values_differ(result.detach(), right.detach(), precision)


def _values_differ(result: Tensor, right: Tensor, precision: bool) -> str:
    """How two tensors of one shape and kind differ in values, then in precision."""
    lower = result.dtype != right.dtype
    a, b = result.double(), right.double()
    tolerance = _SINGLE if lower else _TOLERANCE
    wrong = ~torch.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    if wrong.any():
        if (a.isnan() & ~b.isnan()).any():
            return f"Its result holds nan in {_share(a.isnan())} elements."
        gap = (a - b).abs()[wrong].max().item()
        size = f"about {_magnitude(gap)}" if math.isfinite(gap) else "infinite"
        return f"Its values differ in {_share(wrong)} elements; the largest difference is {size}."
    if lower and precision:
        return f"Its values agree, but they are {_dtype(result)}; {_dtype(right)} is expected, as the inputs are."
    return ""


def _gradient_problem(function: Function, expected: Function, inputs: Mapping[str, Any]) -> str:
    """How the gradients of a function differ from the right ones, as a sentence; empty where they do not."""
    right = _gradients(expected, inputs)
    try:
        found = _gradients(function, inputs)
    except Exception as error:
        return f"Its backward pass raised {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    for name, gradient in right.items():
        if gradient is None:
            continue
        mine = found[name]
        if mine is None:
            return f"No gradient reaches {name}: is something detached, or made anew from numbers?"
        if _values_differ(mine, gradient, precision=False):
            problem = "holds nan" if mine.isnan().any() else "has other values"
            return f"The gradient for {name} {problem}."
    return ""


def _gradients(function: Function, inputs: Mapping[str, Any]) -> dict[str, Tensor | None]:
    """For every floating-point input the gradient of a weighted sum of the result."""
    copies = copy.deepcopy(dict(inputs))
    floating = {
        name: t.requires_grad_() for name, t in copies.items() if isinstance(t, Tensor) and t.is_floating_point()
    }
    with torch.enable_grad():
        result = function(*copies.values())
        if not result.requires_grad:
            return dict.fromkeys(floating)
        towards = torch.randn(result.shape, dtype=result.dtype, generator=torch.Generator().manual_seed(1))
        gradients = torch.autograd.grad((result * towards).sum(), list(floating.values()), allow_unused=True)
    return dict(zip(floating, gradients, strict=True))


# Words.


def _first_problem(problems: Mapping[str, str], cases: Cases) -> list[str]:
    """The first problem, where it was seen, and the other cases that have one, unless all have."""
    (case, problem), *others = problems.items()
    also = [f"Also wrong: {'; '.join(name for name, _ in others)}."] if 0 < len(others) < len(cases) - 1 else []
    return [problem, _where(case, cases[case]), *also]


def _where(case: str, inputs: Mapping[str, Any]) -> str:
    """The case, and the shapes of its inputs."""
    given = ", ".join(
        f"{name} {tuple(value.shape)}" if isinstance(value, Tensor) else f"{name} = {value!r}"
        for name, value in inputs.items()
    )
    return f"Seen with: {case}" if case == given else f"Seen with: {case}; {given}"


def _describe(value: object) -> str:
    text = f"{value!r}"
    return f"{type(value).__name__} {text}" if len(text) <= 30 else type(value).__name__


def _is_double(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float64


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _share(where: Tensor) -> str:
    return "all" if where.all() else f"{where.sum().item()} of {where.numel()}"


def _magnitude(number: float) -> str:
    """A number as the nearest power of ten, so that every machine prints the same."""
    return f"{10.0 ** round(math.log10(number)):g}"
