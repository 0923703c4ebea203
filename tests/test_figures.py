"""What the figures draw is what they were given: the artists' data is asserted, not pixels."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle

from annotated_transformer import figures, style

ROWS = ["Ich", "habe", "den", "Hund", "gesehen"]
COLUMNS = ["I", "saw", "the"]
FUTURE = np.triu(np.ones((5, 5), bool), 1)


@pytest.fixture(autouse=True)
def own_settings():
    with mpl.rc_context():
        yield


def weights(n=5, m=3, seed=0):
    return torch.randn(n, m, generator=torch.Generator().manual_seed(seed)).softmax(-1)


def masked_cells(ax):
    return {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in ax.patches if p.get_gid() == "masked"}


def words(ticks):
    return [tick.get_text() for tick in ticks]


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


class TestMaps:
    def test_rows_are_queries_and_columns_keys(self):
        given = weights()
        figure = figures.attention_map(given, ROWS, COLUMNS)
        ax, bar = figure.axes
        assert np.allclose(ax.images[0].get_array(), given.numpy())
        assert words(ax.get_yticklabels()) == ROWS
        assert words(ax.get_xticklabels()) == COLUMNS
        assert (ax.get_ylabel(), ax.get_xlabel(), bar.get_ylabel()) == ("← query", "key →", "weight")
        assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first query is on top

    def test_colours_reach_from_0_to_1(self):
        image = figures.attention_map(weights() * 0.1, ROWS, COLUMNS).axes[0].images[0]
        assert image.get_clim() == (0, 1)
        assert image.get_cmap().name == "cividis"

    def test_small_maps_carry_their_numbers(self):
        given = weights()
        texts = figures.attention_map(given, ROWS, COLUMNS).axes[0].texts
        found = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in texts}
        assert found == {(i, j): f"{given[i, j]:.2f}" for i in range(5) for j in range(3)}

    def test_numbers_can_be_read_on_their_cells(self):
        ax = figures.attention_map([[0.0, 1.0]], ["q"], ["a", "b"]).axes[0]
        assert [text.get_color() for text in ax.texts] == ["white", "black"]

    def test_large_maps_do_not(self):
        names = [str(i) for i in range(32)]
        assert not figures.attention_map(weights(32, 32), names, names).axes[0].texts

    def test_masked_cells_are_hatched_and_have_no_number(self):
        figure = figures.attention_map(weights(5, 5), ROWS, ROWS, masked=torch.from_numpy(FUTURE))
        ax = figure.axes[0]
        assert masked_cells(ax) == set(zip(*np.nonzero(FUTURE), strict=True))
        assert all(patch.get_hatch() for patch in ax.patches)
        assert (ax.images[0].get_array().mask == FUTURE).all()
        assert len(ax.texts) == 15
        assert words(figure.legends[0].get_texts()) == ["masked"]

    def test_nothing_masked_needs_no_legend(self):
        assert not figures.attention_map(weights(), ROWS, COLUMNS).legends

    def test_several_maps_share_one_scale(self):
        figure = figures.attention_map({"right": weights(), "wrong": weights(seed=1)}, ROWS, COLUMNS)
        left, right, bar = figure.axes
        assert (left.get_title(), right.get_title(), bar.get_ylabel()) == ("right", "wrong", "weight")
        assert np.allclose(right.images[0].get_array(), weights(seed=1).numpy())
        assert right.get_ylabel() == ""

    def test_axes_may_be_named_otherwise(self):
        ax = figures.attention_map(weights(), ROWS, COLUMNS, row_axis="German", column_axis="English").axes[0]
        assert (ax.get_ylabel(), ax.get_xlabel()) == ("← German", "English →")

    def test_long_words_are_turned(self):
        short = figures.attention_map(weights(), ROWS, COLUMNS).axes[0]
        long = figures.attention_map(weights(), ROWS, ["gesehen", "gesehen", "gesehen"]).axes[0]
        assert {label.get_rotation() for label in short.get_xticklabels()} == {0}
        assert {label.get_rotation() for label in long.get_xticklabels()} == {90}

    def test_signed_numbers_are_symmetrical_around_white(self):
        image = figures.heatmap([[-3.0, 1.0]], ["q"], ["a", "b"]).axes[0].images[0]
        assert image.get_clim() == (-3, 3)
        assert min(image.cmap(image.norm(0.0))) > 0.95
        assert figures.heatmap([[-3.0, 1.0]], ["q"], ["a", "b"]).axes[0].texts[0].get_text() == "−3.00"

    def test_numbers_without_sign_have_the_same_colours_and_half_the_bar(self):
        one, bar = figures.heatmap([[0.0, 3.0]], ["q"], ["a", "b"], signed=False).axes
        assert one.images[0].get_clim() == (-3, 3)  # 0 is white, as ever
        assert bar.get_ylim() == (0, 3)
        assert figures.heatmap([[0.0, 3.0]], ["q"], ["a", "b"]).axes[-1].get_ylim() == (-3, 3)
        with pytest.raises(ValueError, match=r"must not be negative \(in 'b'\) unless signed, got -1"):
            figures.heatmap({"a": [[1.0]], "b": [[-1.0]]}, ["q"], ["k"], signed=False)

    def test_scores_may_be_minus_infinity_or_all_zero(self):
        image = figures.heatmap([[-np.inf, 1.0]], ["q"], ["a", "b"], masked=[[True, False]]).axes[0].images[0]
        assert image.get_clim() == (-1, 1)
        assert figures.heatmap([[0.0]], ["q"], ["k"]).axes[0].images[0].get_clim() == (-1, 1)

    def test_mask_grid_has_a_dot_where_attending_is_allowed(self):
        figure = figures.mask_grid(~FUTURE, ROWS, ROWS)
        ax = figure.axes[0]
        dots = {(round(y), round(x)) for x, y in ax.lines[0].get_xydata()}
        assert dots == set(zip(*np.nonzero(~FUTURE), strict=True))
        assert masked_cells(ax) == set(zip(*np.nonzero(FUTURE), strict=True))
        assert words(figure.legends[0].get_texts()) == ["may attend", "masked"]
        named = figures.mask_grid(~FUTURE, ROWS, ROWS, allowed_name="heard", masked_name="not heard")
        assert words(named.legends[0].get_texts()) == ["heard", "not heard"]

    def test_several_masks(self):
        figure = figures.mask_grid({"causal": ~FUTURE, "none": np.ones((5, 5), bool)}, ROWS, ROWS)
        assert [ax.get_title() for ax in figure.axes] == ["causal", "none"]
        assert not masked_cells(figure.axes[1])

    def test_owners_have_their_number_and_their_colour(self):
        given = np.array([[1, 1, 2], [3, 2, 2], [3, 3, 1], [1, 2, 3], [1, 1, 1]])
        figure = figures.owners(given, ROWS, COLUMNS, owner="head", row_axis="position", column_axis="feature")
        ax = figure.axes[0]
        found = {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in ax.texts}
        assert found == {place: str(number) for place, number in np.ndenumerate(given)}
        colours = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)): p.get_facecolor() for p in ax.patches}
        assert colours == {
            place: mpl.colors.to_rgba(style.SERIES[number - 1].colour) for place, number in np.ndenumerate(given)
        }
        assert words(figure.legends[0].get_texts()) == ["head 1", "head 2", "head 3"]
        for wrong in (0, 1.5, 6):
            with pytest.raises(ValueError, match=r"numbers must be whole, from 1 to 5 \(in 'b'\)"):
                figures.owners({"b": [[wrong]]}, ["r"], ["c"], owner="head", row_axis="r", column_axis="c")

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"5 labels and a column for each of 3, got the shape \(3, 5\)"):
            figures.attention_map(weights().T, ROWS, COLUMNS)
        with pytest.raises(ValueError, match=r"\(in 'wrong'\)"):
            figures.attention_map({"right": weights(), "wrong": weights(2, 2)}, ROWS, COLUMNS)
        with pytest.raises(ValueError, match=r"between 0 and 1.*got -1 to 2"):
            figures.attention_map([[-1.0, 2.0]], ["q"], ["a", "b"])
        with pytest.raises(ValueError, match="masked must have the shape"):
            figures.attention_map(weights(), ROWS, COLUMNS, masked=FUTURE)
        with pytest.raises(ValueError, match="at least one map"):
            figures.heatmap({}, ROWS, COLUMNS)
        with pytest.raises(TypeError, match=r"mask must be boolean.*int64"):
            figures.mask_grid(np.ones((5, 5), int), ROWS, ROWS)
        with pytest.raises(TypeError, match=r"masked must be boolean, True = left out, got float64"):
            figures.attention_map(weights(5, 5), ROWS, ROWS, masked=FUTURE * 1.0)
        with pytest.raises(ValueError, match="weights must hold numbers, got nan everywhere"):
            figures.attention_map([[np.nan, np.nan]], ["q"], ["a", "b"])
        with pytest.raises(TypeError, match="columns must hold strings, got int 0"):
            figures.attention_map(weights(), ROWS, range(3))
        with pytest.raises(ValueError, match="rows must hold at least one label"):
            figures.heatmap(np.ones((0, 3)), [], COLUMNS)

    def test_a_weight_may_be_nan(self):
        texts = figures.attention_map([[np.nan, 1.0]], ["q"], ["a", "b"]).axes[0].texts
        assert [text.get_text() for text in texts] == ["1.00"]

    def test_bfloat16(self):
        given = weights().bfloat16()
        image = figures.attention_map(given, ROWS, COLUMNS).axes[0].images[0]
        assert np.array_equal(image.get_array(), given.float().numpy())
        assert figures.slope(torch.arange(1, 5).bfloat16(), torch.arange(1, 5).bfloat16()) == pytest.approx(1)


class TestLines:
    X = 2.0 ** np.arange(1, 6)

    def test_one_run_is_a_line_without_a_band(self):
        ax = figures.curves(self.X, {"a": self.X, "b": 2 * self.X}, x_axis="n", y_axis="time").axes[0]
        assert np.array_equal(lines(ax)["b"].get_xydata(), np.stack([self.X, 2 * self.X], 1))
        assert not ax.collections
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("n", "time")
        assert words(ax.get_legend().get_texts()) == ["a", "b"]

    def test_seeds_become_a_median_and_a_band_from_lowest_to_highest(self):
        seeds = np.array([[3.0, 4, 5, 6, 7], [10, 10, 10, 10, 10], [1, 2, 3, 4, 5]])
        ax = figures.curves(self.X, {"a": seeds}, x_axis="n").axes[0]
        assert np.array_equal(ax.lines[0].get_ydata(), [3, 4, 5, 6, 7])
        band = ax.collections[0].get_paths()[0].vertices
        assert {tuple(point) for point in band} >= set(zip(self.X, seeds.min(0), strict=True))
        assert {tuple(point) for point in band} >= set(zip(self.X, seeds.max(0), strict=True))

    def test_series_differ_in_more_than_colour(self):
        ax = figures.curves(self.X, dict.fromkeys("abcde", self.X), x_axis="n").axes[0]
        assert len({line.get_marker() for line in ax.lines}) == 5
        assert len({line.get_linestyle() + str(line._unscaled_dash_pattern) for line in ax.lines}) == 5

    def test_a_role_has_its_look(self):
        ax = figures.curves(self.X, {"keys": self.X, "other": self.X}, x_axis="n").axes[0]
        assert lines(ax)["keys"].get_color() == style.KEY.colour

    def test_panels_stand_above_each_other_and_share_x(self):
        panels = {"time": {"a": self.X}, "memory": {"a": self.X**2}}
        top, bottom = figures.curves(self.X, panels, x_axis="n", scale="log log", ticks=[2, 8, 32]).axes
        assert (top.get_ylabel(), bottom.get_ylabel(), bottom.get_xlabel()) == ("time", "memory", "n")
        assert top.get_shared_x_axes().joined(top, bottom)
        assert (bottom.get_xscale(), bottom.get_yscale()) == ("log", "log")
        assert words(bottom.get_xticklabels()) == ["2", "8", "32"]

    def test_small_panels_share_both_axes_and_one_legend(self):
        panels = {name: {"a": power * self.X, "b": self.X} for power, name in enumerate(["one", "two", "three"])}
        figure = figures.curves(self.X, panels, x_axis="n", y_axis="y", ticks=[2, 32], scale="log x", across=2)
        one, two, three, none = figure.axes
        assert [ax.get_title() for ax in (one, two, three)] == ["one", "two", "three"]
        assert np.array_equal(lines(two)["a"].get_ydata(), self.X)
        assert not none.get_visible()
        assert one.get_shared_x_axes().joined(one, three)
        assert one.get_shared_y_axes().joined(one, two)
        assert (figure.get_supylabel(), one.get_ylabel()) == ("y", "")
        assert [ax.get_xlabel() for ax in (one, two, three)] == ["", "n", "n"]  # where nothing stands below
        assert words(two.get_xticklabels()) == words(three.get_xticklabels()) == ["2", "32"]
        figure.canvas.draw()
        assert [ax.xaxis.get_tick_params()["labelbottom"] for ax in (one, two, three)] == [False, True, True]
        assert words(figure.legends[0].get_texts()) == ["a", "b"]
        assert not figures.curves(self.X, {"one": {"a": self.X}}, x_axis="n", across=2).legends

    @pytest.mark.parametrize(
        ("scale", "axes"),
        [("linear", ("linear", "linear")), ("log x", ("log", "linear")), ("log y", ("linear", "log"))],
    )
    def test_scales(self, scale, axes):
        ax = figures.curves(self.X, {"a": self.X}, x_axis="n", scale=scale).axes[0]
        assert (ax.get_xscale(), ax.get_yscale()) == axes

    def test_log_log_says_the_slopes(self):
        series = {"linear": self.X, "square": np.stack([self.X**2, 2 * self.X**2])}
        ax = figures.log_log(self.X, series, x_axis="$d_k$", y_axis="variance").axes[0]
        assert words(ax.get_legend().get_texts()) == ["linear: slope 1.00", "square: slope 2.00"]
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        assert len(ax.collections) == 1

    def test_log_log_keeps_the_looks_of_roles(self):
        ax = figures.log_log(self.X, {"queries": self.X, "b": self.X}, x_axis="x", y_axis="y").axes[0]
        assert ax.lines[0].get_color() == style.QUERY.colour

    @pytest.mark.parametrize("power", [-0.5, 0, 1.5])
    def test_slope(self, power):
        assert figures.slope(self.X, 7 * self.X**power) == pytest.approx(power)

    def test_slope_fits_the_median_of_the_seeds(self):
        assert figures.slope(self.X, np.stack([self.X, self.X, self.X**9])) == pytest.approx(1)

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"a must be \(5,\) or \(seeds, 5\), got the shape \(3,\)"):
            figures.curves(self.X, {"a": [1, 2, 3]}, x_axis="n")
        with pytest.raises(ValueError, match="scale must be one of linear"):
            figures.curves(self.X, {"a": self.X}, x_axis="n", scale="loglog")
        with pytest.raises(ValueError, match="'b' is a series among panels"):
            figures.curves(self.X, {"a": {"a": self.X}, "b": self.X}, x_axis="n")
        with pytest.raises(ValueError, match=r"panels must have the same series, got \['a'\], \['b'\]"):
            figures.curves(self.X, {"one": {"a": self.X}, "two": {"b": self.X}}, x_axis="n", across=2)
        with pytest.raises(ValueError, match="'b' is a series among panels"):
            figures.curves(self.X, {"a": {"a": self.X}, "b": self.X}, x_axis="n", across=2)
        with pytest.raises(ValueError, match="above 0"):
            figures.log_log(self.X, {"a": -self.X}, x_axis="n", y_axis="y")
        with pytest.raises(ValueError, match="a must be above 0 on a logarithmic axis, got 0"):
            figures.curves(self.X, {"a": 0 * self.X}, x_axis="n", scale="log y")
        with pytest.raises(ValueError, match="x must be above 0"):
            figures.curves(self.X - 2, {"a": self.X}, x_axis="n", scale="log x")
        with pytest.raises(ValueError, match="x must be a list of numbers"):
            figures.curves(3.0, {"a": [1]}, x_axis="n")
        for x in ([1.0], [2.0, 2.0]):
            with pytest.raises(
                ValueError, match="x must have at least two points to fit a slope, and not all the same"
            ):
                figures.slope(x, x)
        with pytest.raises(ValueError, match="x must be finite to fit a slope, got inf"):
            figures.slope([1, np.inf], [1, 2])
        with pytest.raises(ValueError, match="y must be finite to fit a slope, got nan"):
            figures.slope([1, 2], [1, np.nan])
        with pytest.raises(ValueError, match="time must be finite to fit a slope, got nan"):
            figures.log_log([1, 2], {"time": [1, np.nan]}, x_axis="x", y_axis="y")
        for draw in (figures.curves, figures.log_log):
            with pytest.raises(TypeError, match=r"must map names to numbers, such as \{'a': \[1, 2\]\}, got list"):
                draw(self.X, [self.X], x_axis="n", y_axis="y")
        with pytest.raises(ValueError, match="panels must hold at least one name"):
            figures.curves(self.X, {}, x_axis="n")
        with pytest.raises(ValueError, match="at most 5 series"):
            figures.curves(self.X, dict.fromkeys("abcdef", self.X), x_axis="n")


class TestBars:
    def test_lengths_and_numbers(self):
        figure = figures.bars(["short", "long"], {"a": [1, 10], "b": [2, 20]}, axis="time (ms)")
        ax = figure.axes[0]
        assert [bar.get_width() for bar in ax.containers[1]] == [2, 20]
        assert words(ax.texts) == ["1", "10", "2", "20"]
        assert words(ax.get_yticklabels()) == ["short", "long"]
        assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first group is on top
        assert ax.get_xlabel() == "time (ms)"
        assert words(figure.legends[0].get_texts()) == ["a", "b"]
        assert len({bar.get_hatch() for bar in ax.patches if isinstance(bar, Rectangle)}) == 2

    def test_seeds_become_a_median_with_a_whisker(self):
        ax = figures.bars(["g"], {"a": [[1.0], [2.0], [9.0]]}, axis="x").axes[0]
        bars = next(c for c in ax.containers if hasattr(c, "patches"))
        assert bars[0].get_width() == 2
        (whisker,) = bars.errorbar.lines[2][0].get_segments()
        assert whisker[:, 0].tolist() == [1, 9]

    def test_one_series_needs_no_legend(self):
        assert not figures.bars(["g"], {"a": [1]}, axis="x").legends

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"a must be \(2,\)"):
            figures.bars(["g", "h"], {"a": [1]}, axis="x")
        with pytest.raises(ValueError, match="a must be above 0 on a logarithmic axis, got 0"):
            figures.bars(["g", "h"], {"a": [1, 0]}, axis="x", log=True)
        with pytest.raises(TypeError, match="groups must hold strings, got int 1"):
            figures.bars([1], {"a": [1]}, axis="x")
        with pytest.raises(TypeError, match="series must map names to numbers"):
            figures.bars(["g"], [[1]], axis="x")


POSITIONS = np.linspace(0, 2, 21)
KEYS = {"I": 0.0, "saw": 1.0, "the": 2.0}
VALUES = {"I": 3.0, "saw": -1.0, "the": 2.0}


class TestSweep:
    def made(self, **changes):
        scores = -((POSITIONS[:, None] - np.array(list(KEYS.values()))) ** 2)
        table = torch.from_numpy(scores).softmax(-1)
        outputs = table @ torch.tensor(list(VALUES.values()), dtype=torch.float64)
        fields = {"weights": table, "outputs": outputs, "keys": KEYS, "values": VALUES} | changes
        return table, outputs, figures.sweep(POSITIONS, fields.pop("weights"), fields.pop("outputs"), **fields)

    def test_weights_above_and_output_below(self):
        table, outputs, figure = self.made()
        top, bottom = figure.axes
        curves = [line for line in top.lines if len(line.get_xdata()) == 21]
        assert np.allclose([line.get_ydata() for line in curves], table.T)
        assert np.allclose(next(line for line in bottom.lines if len(line.get_xdata()) == 21).get_ydata(), outputs)
        assert (top.get_ylabel(), bottom.get_ylabel()) == ("weight", "output")

    def test_keys_and_values_are_marked_and_named(self):
        _, _, figure = self.made()
        top, bottom = figure.axes
        marks = [line.get_xydata()[0].tolist() for line in bottom.lines if len(line.get_xdata()) == 1]
        assert marks == [[0, 3], [1, -1], [2, 2]]
        assert words(top.texts) == ["I", "saw", "the"]
        assert words(bottom.texts) == ["value of I", "value of saw", "value of the"]

    def test_a_label_stands_where_the_output_does_not_pass(self):
        _, _, figure = self.made()
        heights = {text.get_text(): text.xyann[1] for text in figure.axes[1].texts}
        assert heights["value of I"] > 0
        assert heights["value of saw"] < 0  # the output has its valley there

    def test_values_may_be_left_out(self):
        _, _, figure = self.made(values=None)
        assert not figure.axes[1].texts

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"weights must be \(positions, keys\), \(21, 3\), got \(3, 21\)"):
            self.made(weights=np.ones((3, 21)))
        with pytest.raises(ValueError, match="values must have the names of the keys"):
            self.made(values={"I": 1.0})
        for outputs in ([1.0], np.ones((2, 21))):
            with pytest.raises(ValueError, match=r"outputs must be one number for each position, \(21,\), got \("):
                self.made(outputs=outputs)
        with pytest.raises(TypeError, match="keys must map names to numbers"):
            self.made(keys=[0.0, 1.0, 2.0])
        with pytest.raises(TypeError, match="values must map names to numbers"):
            self.made(values=[0.0, 1.0, 2.0])


class TestSaturation:
    D_K = np.array([2, 64, 1024])

    def test_two_panels(self):
        share = {"with": [0, 0, 0], "without": [[0, 0.2, 0.7], [0, 0.1, 0.8]]}
        derivative = {"with": [1e-2] * 3, "without": [1e-2, 1e-9, 1e-30]}
        top, bottom = figures.saturation(self.D_K, share, derivative).axes
        assert np.allclose(lines(top)["without"].get_ydata(), [0, 0.15, 0.75])
        assert np.array_equal(lines(bottom)["without"].get_ydata(), [1e-2, 1e-9, 1e-30])
        assert (top.get_yscale(), bottom.get_yscale(), bottom.get_xscale()) == ("linear", "log", "log")
        assert words(bottom.get_xticklabels()) == ["2", "64", "1024"]

    def test_the_norm_is_the_third(self):
        same = {"with": [0.1, 0.2, 0.3]}
        axes = figures.saturation(self.D_K, same, same, same).axes
        assert [ax.get_ylabel().split()[0] for ax in axes] == ["share", "median", "mean"]

    def test_a_derivative_of_zero_cannot_be_drawn(self):
        with pytest.raises(ValueError, match="with must be above 0"):
            figures.saturation(self.D_K, {"with": [0, 0, 0]}, {"with": [0, 0, 0]})

    def test_each_panel_names_its_variants(self):
        same = {"with": [0.1, 0.2, 0.3]}
        for name, given in (("saturated", ([], same)), ("derivative", (same, [])), ("norm", (same, same, []))):
            with pytest.raises(TypeError, match=f"{name} must map names to numbers"):
                figures.saturation(self.D_K, *given)


class TestCubes:
    AXES = ("sentence", "position", "feature")

    @staticmethod
    def block(*places):
        taken = np.zeros((3, 5, 4), bool)
        taken[places] = True
        return taken

    @staticmethod
    def seen(ax, kind):
        """The cubes that are seen as ``taken`` or ``left``; a cube at an edge shows two faces or three."""
        found = [tuple(map(int, p.get_gid().split()[1:])) for p in ax.patches if p.get_gid().startswith(kind)]
        return {place: found.count(place) for place in found}

    def test_what_is_taken_is_dark_where_it_can_be_seen(self):
        whole = {"feature": self.block(slice(None), slice(None), 0), "token": self.block(0, 3)}
        feature, token = figures.cubes(whole, self.AXES).axes
        assert self.seen(feature, "taken").keys() == {(i, j, 0) for i in range(3) for j in range(5)}
        assert self.seen(token, "taken") == {(0, 3, 0): 2, (0, 3, 1): 1, (0, 3, 2): 1, (0, 3, 3): 1}
        faces = 5 * 4 + 3 * 5 + 3 * 4
        assert sum(self.seen(token, "taken").values()) + sum(self.seen(token, "left").values()) == faces

    def test_dark_differs_from_left_in_lightness(self):
        ax = figures.cubes(self.block(0, 3), self.AXES).axes[0]
        light = {p.get_gid().split()[0]: np.mean(p.get_facecolor()[:3]) for p in ax.patches}
        assert light["left"] - light["taken"] > 0.3

    def test_the_first_place_is_in_front_on_the_left_at_the_top(self):
        ax = figures.cubes(self.block(0, 0, 0), self.AXES).axes[0]
        corners = np.concatenate([p.get_xy() for p in ax.patches if p.get_gid() == "taken 0 0 0"])
        everything = np.concatenate([p.get_xy() for p in ax.patches])
        assert corners[:, 0].min() == everything[:, 0].min() == 0
        assert corners[:, 1].min() == -1
        assert everything[:, 1].min() == -4

    def test_padding_is_hatched(self):
        padding = self.block(0, 4)
        figure = figures.cubes(self.block(0, 3), self.AXES, masked=padding, words=["I", "saw", "the", "dog", "–"])
        ax = figure.axes[0]
        assert sum(p.get_gid() == "masked" for p in ax.patches) == 4 + 1 + 4  # front, top and right
        assert words(ax.get_xticklabels()) == ["I", "saw", "the", "dog", "–"]
        assert words(figure.legends[0].get_texts()) == ["taken together", "padding"]

    def test_two_axes_are_one_sheet(self):
        ax = figures.cubes(np.eye(5, 4, dtype=bool), ("sample", "feature")).axes[0]
        assert self.seen(ax, "taken").keys() == {(0, i, i) for i in range(4)}
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("sample →", "← feature")
        assert not ax.texts

    def test_what_does_not_fit_is_refused(self):
        with pytest.raises(TypeError, match="taken must be boolean, got float64"):
            figures.cubes(np.ones((2, 3, 4)), self.AXES)
        with pytest.raises(ValueError, match="taken must have two or three axes"):
            figures.cubes(np.ones(3, bool), ("feature",))
        with pytest.raises(ValueError, match="axes must name each axis"):
            figures.cubes(self.block(0), ("sample", "feature"))
        with pytest.raises(ValueError, match="must have one shape"):
            figures.cubes(self.block(0), self.AXES, masked=np.ones((3, 5, 3), bool))
        with pytest.raises(ValueError, match="words must hold 5"):
            figures.cubes(self.block(0), self.AXES, words=["I"])


class TestClocks:
    def test_a_hand_starts_at_twelve_and_turns_clockwise(self):
        tips = [[[0, 1], [1, 0]], [[0, -1], [-1, 0]]]  # 12 and 3 o'clock; 6 and 9
        ax = figures.clocks(tips, ["a", "b"], ["fast", "slow"]).axes[0]
        hands = [line.get_xydata() for line in ax.lines if len(line.get_xydata()) == 2]
        assert [tuple(np.round(end - start, 6)) for start, end in hands] == [(0, -0.4), (0.4, 0), (0, 0.4), (-0.4, 0)]
        assert [tuple(start) for start, _ in hands] == [(0, 0), (1, 0), (0, 1), (1, 1)]
        assert ax.get_ylim()[0] > ax.get_ylim()[1]  # y points down: the first row is on top, and -0.4 is up
        assert (words(ax.get_yticklabels()), words(ax.get_xticklabels())) == (["a", "b"], ["fast", "slow"])
        assert len(ax.patches) == 4

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"tips must be \(rows, columns, 2\), \(1, 2, 2\), got \(2, 2\)"):
            figures.clocks([[0, 1], [1, 0]], ["a"], ["fast", "slow"])
        with pytest.raises(ValueError, match="no hand may be longer than 1"):
            figures.clocks([[[1, 1]]], ["a"], ["fast"])
        with pytest.raises(ValueError, match="no hand may be longer than 1"):
            figures.clocks([[[np.nan, 0]]], ["a"], ["fast"])


X = 2.0 ** np.arange(1, 6)
SEEDS = {"a": np.stack([X, 2 * X]), "b": X}
NAMES = [str(i) for i in range(40)]
AXES = {"row_axis": "position", "column_axis": "feature"}
EVERY = {
    "attention": lambda: figures.attention_map(weights(5, 5), ROWS, ROWS, masked=FUTURE),
    "large": lambda: figures.attention_map(weights(40, 40), NAMES, NAMES),
    "many": lambda: figures.attention_map({str(i): weights(5, 5, i) for i in range(4)}, ROWS, ROWS),
    "scores": lambda: figures.heatmap(weights(), ROWS, COLUMNS),
    "masks": lambda: figures.mask_grid({"causal": ~FUTURE, "both": ~FUTURE}, ROWS, ROWS),
    "cubes": lambda: figures.cubes(
        {name: TestCubes.block(0) for name in "abc"}, TestCubes.AXES, masked=TestCubes.block(0, 4), words=ROWS
    ),
    "sheets": lambda: figures.cubes({"a": FUTURE, "b": ~FUTURE}, ("sample", "feature")),
    "owners": lambda: figures.owners({"a": FUTURE + 1, "b": ~FUTURE + 1}, ROWS, ROWS, owner="head", **AXES),
    "flow": lambda: figures.flow(
        {name: [("masked self-att.", "weights (2, 3, 6, 6)", "(2, 6)")] * 11 for name in "ab"}
    ),
    "tree": lambda: figures.tree(TREE),
    "curves": lambda: figures.curves(X, {"time": SEEDS, "memory": SEEDS}, x_axis="n"),
    "log log": lambda: figures.log_log(X, SEEDS, x_axis="n", y_axis="y"),
    "bars": lambda: figures.bars(list("abcde"), SEEDS, axis="x"),
    "intervals": lambda: figures.intervals(
        dict.fromkeys(("base", "C5", "big"), (39_841, 41_793)),
        axis="tokens in the vocabulary",
        band=(41_004, 41_208),
        marks={"about 37,000": 37_000, "40,960": 40_960},
    ),
    "differences": lambda: figures.differences(
        [f"A{i}" for i in range(19)], {name: np.linspace(-0.031, 20.5, 57).reshape(3, 19) for name in ("here", "paper")}
    ),
    "sweep": lambda: TestSweep().made()[2],
    "clocks": lambda: figures.clocks(np.zeros((7, 5, 2)), ["1000"] * 7, ["6283"] * 5, column_axis="hand"),
    "many clocks": lambda: figures.clocks(np.zeros((3, 12, 2)), ROWS[:3], ["a"] * 12),
    "saturation": lambda: figures.saturation(X, SEEDS, SEEDS, SEEDS),
    "pieces": lambda: figures.pieces(
        {"1000": ["▁Ich", "▁habe", "▁den", "▁Hund", "▁gesehen"], "0": ["g"]}, notes=["14 pieces", "1"], axis="merges"
    ),
    "heard": lambda: figures.heard(np.eye(80, 300), weights(20, 100), ["▁convolutions"] * 20, 7.8),
    "pictures": lambda: figures.pictures(np.ones((6, 8, 8)), np.ones((6, 4, 4)), list("012345")),
    "padding": lambda: figures.padding(
        {f"in pools of\n{i}": [np.full((64, 2), 60)] * 4 for i in range(5)}, notes=["66 %\nmax 2.5"] * 5
    ),
}


@pytest.mark.parametrize("name", list(EVERY))
def test_a_figure_fits_the_page_and_can_be_read_on_a_phone(name):
    figure = EVERY[name]()
    assert figure.get_figwidth() <= style.WIDTH
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    assert box.x0 >= 0, "cut off on the left"
    assert box.y0 >= 0, "cut off at the bottom"
    assert box.x1 <= figure.get_figwidth(), "cut off on the right"
    assert box.y1 <= figure.get_figheight(), "cut off at the top"
    sizes = [text.get_fontsize() for text in figure.findobj(mpl.text.Text) if text.get_text().strip()]
    assert min(sizes) / 72 * 350 / style.WIDTH >= 7.5, "less than 7.5 CSS pixels where the page is 350 wide"


def test_a_small_map_is_no_wider_than_it_needs():
    assert figures.attention_map(np.eye(3), list("abc"), list("abc")).get_figwidth() < 0.7 * style.WIDTH
    assert figures.mask_grid(np.ones((20, 20), bool), list("a" * 20), list("a" * 20)).get_figwidth() == style.WIDTH


def test_no_model_and_no_pyplot_is_loaded():
    code = (
        "import sys, numpy as np; from annotated_transformer import figures; figures.heatmap(np.eye(2), 'ab', 'cd');"
        "sys.exit(any(name in sys.modules for name in ('matplotlib.pyplot', 'annotated_transformer.model')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# flow

SMALL_FLOW = {"left": [("in", "", "(2, 4)"), ("a", "(4, 4)", "(2, 4, 8)")], "right": [("b", "", "x"), ("c", "", "y")]}


def test_flow_draws_every_block_and_names_what_every_arrow_carries():
    figure = figures.flow(
        SMALL_FLOW, across=[(("left", 1), ("right", 1))], past=[("right", 0)], repeated={"left": (1, 1, "N times")}
    )
    (ax,) = figure.axes
    words = {text.get_text() for text in ax.texts}
    assert words >= {"left", "right", "in", "a", "b", "c", "(2, 4)", "(4, 4)", "(2, 4, 8)", "x", "y", "N times"}
    gids = [patch.get_gid() for patch in ax.patches]
    assert gids.count("block") == 4
    assert gids.count("repeated") == 1
    heads = [text.xy for text in ax.texts if getattr(text, "arrow_patch", None)]
    assert len(heads) == 5  # one above each block but `a`, whose arrow leads across; one past `b`
    c = next(text.get_position() for text in ax.texts if text.get_text() == "c")
    assert sum(abs(y - c[1]) < 1e-6 and 0.7 < abs(x - c[0]) < 0.8 for x, y in heads) == 2  # into both sides of `c`


@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        ({"left": SMALL_FLOW["left"]}, {}),
        (SMALL_FLOW | {"right": []}, {}),
        (SMALL_FLOW, {"past": [("right", 1)]}),
        (SMALL_FLOW, {"across": [(("left", 1), ("middle", 1))]}),
        (SMALL_FLOW, {"repeated": {"left": (0, 2, "twice")}}),
    ],
)
def test_flow_refuses_what_is_not_there(columns, settings):
    with pytest.raises(ValueError, match="must"):
        figures.flow(columns, **settings)


class TestProgress:
    def test_a_panel_holds_its_points_on_an_axis_as_long_as_the_training(self):
        points = {"loss": [(20, 3.0), (40, 2.0)], "right": []}
        figure = figures.progress(points, last=90, levels={"loss": 0.7})
        loss, right = figure.axes
        assert [tuple(point) for point in loss.lines[0].get_xydata()] == points["loss"]
        assert list(loss.lines[1].get_ydata()) == [0.7, 0.7]
        assert len(right.lines) == 1
        assert len(right.lines[0].get_xdata()) == 0
        assert (loss.get_ylabel(), right.get_ylabel(), right.get_xlabel()) == ("loss", "right", "step")
        assert loss.get_xlim()[1] >= 90

    def test_a_level_needs_its_panel(self):
        with pytest.raises(ValueError, match="levels must be for one of loss, got 'los'"):
            figures.progress({"loss": []}, last=3, levels={"los": 1.0})


class TestAlignments:
    def test_each_map_has_words_of_its_own(self):
        first, second = weights(5, 3), weights(2, 7)
        columns = [str(i) for i in range(7)]
        figure = figures.alignments({"a": (first, ROWS, COLUMNS), "b": (second, ["x", "y"], columns)}, row_axis="says")
        one, other, bar = figure.axes
        assert np.allclose(one.images[0].get_array(), first.numpy())
        assert np.allclose(other.images[0].get_array(), second.numpy())
        assert (words(one.get_yticklabels()), words(one.get_xticklabels())) == (ROWS, COLUMNS)
        assert (words(other.get_yticklabels()), words(other.get_xticklabels())) == (["x", "y"], columns)
        assert [ax.get_title() for ax in (one, other)] == ["a", "b"]
        assert (one.get_ylabel(), one.get_xlabel(), bar.get_ylabel()) == ("← says", "key →", "weight")
        assert all(ax.images[0].get_clim() == (0, 1) for ax in (one, other))

    def test_of_three_maps_the_third_stands_below_and_the_bar_has_the_last_place(self):
        panels = {name: (weights(5, 3), ROWS, COLUMNS) for name in "abc"}
        figure = figures.alignments(panels)
        a, b, c, last = figure.axes
        assert [ax.get_title() for ax in (a, b, c)] == ["a", "b", "c"]
        assert (len(last.images), last.axison) == (0, False)
        (bar,) = last.child_axes
        assert bar.get_xlabel() == "weight"
        assert figure.get_figwidth() == style.WIDTH
        tops = [round(ax.get_subplotspec().get_position(figure).y1, 3) for ax in (a, b, c)]
        assert tops[0] == tops[1] > tops[2]

    def test_letters_stand_upright_and_words_on_their_side(self):
        (ax, _) = figures.alignments({"a": (weights(2, 2), ["x", "y"], ["1", "May"])}).axes
        assert [label.get_rotation() for label in ax.get_xticklabels()] == [0, 90]

    def test_shapes_have_to_fit(self):
        with pytest.raises(ValueError, match="weights must have a row for each of 5 labels"):
            figures.alignments({"a": (weights(3, 5), ROWS, COLUMNS)})
        with pytest.raises(ValueError, match="weights must lie between 0 and 1"):
            figures.alignments({"a": (weights(5, 3) * 9, ROWS, COLUMNS)})


# pieces


def test_pieces_stand_where_their_characters_do():
    (ax,) = figures.pieces({"0": ["a", "b", "c"], "1": ["ab", "c"]}, notes=["3", "2"], axis="merges").axes
    boxes = [
        (p.get_gid(), round(p.get_x()), round(p.get_x() + p.get_width()), round(p.get_y() + 0.36)) for p in ax.patches
    ]
    assert boxes == [("a", 0, 1, 0), ("b", 1, 2, 0), ("c", 2, 3, 0), ("ab", 0, 2, 1), ("c", 2, 3, 1)]
    assert len({p.get_facecolor() for p in ax.patches if len(p.get_gid()) == 1}) == 1
    assert ax.patches[3].get_facecolor() != ax.patches[4].get_facecolor()
    assert words(ax.get_yticklabels()) == ["0", "1"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row is on top
    letters = {(t.get_position(), t.get_text()) for t in ax.texts}
    assert {((0.5, 1), "a"), ((1.5, 1), "b"), ((2.5, 0), "c")} <= letters
    assert [t.get_text() for t in ax.texts][-2:] == ["3", "2"]


@pytest.mark.parametrize("rows", [{"0": []}, {"0": ["a", ""]}])
def test_rows_of_pieces_hold_pieces(rows):
    with pytest.raises(ValueError, match=r"^rows must hold pieces"):
        figures.pieces(rows)


# padding


def test_padding_draws_every_length_and_each_batch_up_to_its_longest():
    figure = figures.padding({"a": [[[3, 1], [2, 5]], [[4, 4]]], "b": [[[1, 1]]]}, notes=["x", "y"])
    left, right = figure.axes
    drawn = [(p.get_gid(), p.get_data().values.tolist(), np.ptp(p.get_data().edges)) for p in left.patches]
    assert drawn == [
        ("all 0", [-3], 2), ("tokens 0", [-3, -2], 2), ("all 1", [5], 2), ("tokens 1", [1, 5], 2),
        ("all 0", [-4], 1), ("tokens 0", [-4], 1), ("all 1", [4], 1), ("tokens 1", [4], 1),
    ]  # fmt: skip
    tops = [p.get_data().edges[0] for p in left.patches[::4]]
    assert tops[0] == 0
    assert tops[1] > 2  # batches do not touch
    assert left.get_xlim() == right.get_xlim() == pytest.approx((-5.25, 5.25))
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the first batch is on top
    assert left.get_ylim() == right.get_ylim()  # a row is as high in every panel
    assert [(ax.get_title(), ax.get_xlabel()) for ax in (left, right)] == [("a", "x"), ("b", "y")]
    assert words(figure.legends[0].get_texts()) == ["← source", "target →", "padding"]
    assert figure.legends[0].get_patches()[2].get_hatch()


@pytest.mark.parametrize("batches", [[], [np.zeros((0, 2))], [np.ones((3, 3))], [np.ones(2)]])
def test_padding_refuses_what_is_no_batch(batches):
    with pytest.raises(ValueError, match=r"^a must be batches of the shape"):
        figures.padding({"a": batches})


@pytest.mark.parametrize("draw", [lambda: figures.pieces({"0": ["a"]}, notes="ab"),
                                  lambda: figures.padding({"a": [np.ones((1, 2))]}, notes="ab")])  # fmt: skip
def test_notes_are_as_many_as_what_they_are_about(draw):
    with pytest.raises(ValueError, match=r"^notes must be one for each of 1"):
        draw()


TREE = [
    (None, "<s>", "", "best"),
    (0, "a", "-1.0", "best"),
    (0, "b", "-2.0", "kept"),
    (1, "c", "-3.0", "best"),
    (1, "d", "-4.0", "pruned"),
]


def test_tree_puts_each_step_in_a_column_and_shows_what_was_given_up():
    (ax,) = figures.tree(TREE).axes
    at = {text.get_text(): text.get_position() for text in ax.texts}
    assert [at[label][0] for label in ("<s>", "a", "b", "c", "d")] == [0, 1, 1, 2, 2]
    assert at["c"][1] < at["a"][1] < at["d"][1] < at["b"][1]  # children stand around their parent, no two in one place
    fates = [line.get_gid() for line in ax.lines if line.get_gid() in ("best", "kept", "pruned")]
    assert sorted(fates) == ["best", "best", "kept", "pruned"]
    styles = {line.get_gid(): (line.get_linestyle(), line.get_linewidth()) for line in ax.lines if line.get_gid()}
    assert len(set(styles.values())) == 3  # told apart without colour


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [(0, "a", "", "kept")],
        [(None, "a", "", "kept"), (None, "b", "", "kept")],
        [(None, "a", "", "kept"), (1, "b", "", "kept")],
        [(None, "a", "", "lost")],
    ],
)
def test_tree_refuses_what_is_no_tree(nodes):
    with pytest.raises(ValueError, match=r"nodes? must"):
        figures.tree(nodes)


# heard, pictures


def test_a_sound_and_what_was_written_share_their_time():
    loudness, given = np.arange(6.0).reshape(3, 2), weights(4, 5)
    top, bottom, bar = figures.heard(loudness, given, list("abcd"), 2.5).axes
    assert np.array_equal(top.images[0].get_array(), loudness)
    assert np.allclose(bottom.images[0].get_array(), given.numpy())
    assert top.images[0].get_extent() == [0, 2.5, 0, 3]  # the lowest band is at the bottom
    assert top.images[0].origin == "lower"
    assert bottom.images[0].get_extent() == [0, 2.5, 3.5, -0.5]  # the first word is on top
    assert words(bottom.get_yticklabels()) == list("abcd")
    assert top.get_xlim() == bottom.get_xlim() == (0, 2.5)
    assert (bottom.images[0].get_clim()[0], bar.get_ylabel()) == (0, "weight")


def test_every_picture_stands_above_its_weights():
    images, given = np.arange(24.0).reshape(2, 3, 4), np.arange(8.0).reshape(2, 2, 2)
    *axes, bar = figures.pictures(images, given, ["3", "8"]).axes
    assert [ax.get_title() for ax in axes] == ["3", "8", "", ""]
    for ax, wanted in zip(axes, [*images, *given], strict=True):
        assert np.array_equal(ax.images[0].get_array(), wanted)
    assert [ax.images[0].get_clim() for ax in axes[2:]] == [(0, 7), (0, 7)]  # one scale for all
    assert bar.get_ylabel() == "weight"


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.heard(np.ones(3), np.ones((1, 3)), ["a"], 1), r"loudness must be \(bands, frames\)"),
        (lambda: figures.heard(np.ones((2, 3)), np.ones((2, 3)), ["a"], 1), "weights must have a row for each of 1"),
        (lambda: figures.heard(np.ones((2, 3)), -np.ones((1, 3)), ["a"], 1), "weights must not be negative, got -1"),
        (lambda: figures.heard(np.ones((2, 3)), np.ones((1, 3)), ["a"], 0), "seconds must be above 0, got 0"),
        (lambda: figures.pictures(np.ones((2, 3, 3)), np.ones((1, 2, 2)), ["a"]), "images must be 1 matrices"),
        (lambda: figures.pictures(np.ones((1, 3, 3)), np.ones((2, 2)), ["a"]), "weights must be 1 matrices"),
        (lambda: figures.pictures(np.ones((1, 3, 3)), -np.ones((1, 2, 2)), ["a"]), "weights must not be negative"),
    ],
)
def test_sounds_and_pictures_have_to_fit(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


# intervals, differences


def test_intervals_reach_from_least_to_largest_and_tell_who_does_not_agree():
    figure = figures.intervals({"a": (10, 30), "b": (20, 40), "c": (1, 5)}, axis="V", band=(20, 30), marks={"m": 25})
    ax = figure.axes[0]
    bars = {patch.get_gid(): patch for patch in ax.patches}
    assert {name: (bar.get_x(), bar.get_x() + bar.get_width()) for name, bar in bars.items()} == {
        "a": (10, 30), "b": (20, 40), "c": (1, 5), "band": (20, 30),
    }  # fmt: skip
    assert bars["a"].get_facecolor() == bars["b"].get_facecolor() != bars["c"].get_facecolor()
    assert bars["c"].get_hatch()  # not by colour alone
    assert not bars["a"].get_hatch()
    assert [text.get_text() for text in ax.texts] == ["10", "30", "20", "40", "1", "5"]
    assert words(ax.get_yticklabels()) == ["a", "b", "c"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert list(lines(ax)["m"].get_xdata()) == [25, 25]
    assert words(figure.legends[0].get_texts()) == ["m"]
    assert not figures.intervals({"a": (10, 10)}, axis="V").legends


@pytest.mark.parametrize("given", [{"ranges": {"a": (2, 1)}}, {"ranges": {"a": (1, 2)}, "band": (2, 1)}])
def test_intervals_do_not_end_before_they_begin(given):
    with pytest.raises(ValueError, match="must reach from its least to its largest value, got 2 to 1"):
        figures.intervals(**given, axis="V")


def test_differences_have_a_bar_to_the_mean_and_a_dot_for_each_run():
    runs = np.array([[1.0, -2.0], [3.0, -4.0]])
    figure = figures.differences(["a", "b"], {"paper": [5.0, -6.0], "here": runs})
    paper, here = figure.axes
    assert [bar.get_width() for bar in paper.patches] == [5, -6]
    assert [bar.get_width() for bar in here.patches] == [2, -3]
    assert len(paper.lines) == 1  # the zero
    assert [list(line.get_xdata()) for line in here.lines[:-1]] == runs.tolist()
    assert all(list(line.get_ydata()) == [0, 1] for line in here.lines[:-1])
    assert words(paper.get_yticklabels()) == ["a", "b"]
    assert paper.get_ylim()[0] > paper.get_ylim()[1]
    assert (paper.get_xlabel(), here.get_xlabel()) == ("paper", "here")
    with pytest.raises(ValueError, match="here must be"):
        figures.differences(["a", "b"], {"here": [1.0]})
