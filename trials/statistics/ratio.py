"""The 95 % interval of the ratio of two medians."""

from typing import NamedTuple

import numpy as np

from lmsweep.trials.statistics.median_interval import Floats


class RatioInterval(NamedTuple):
    """Ratios and the ends of their 95 % intervals, arrays of one shape."""

    ratio: Floats
    low: Floats
    high: Floats


def ratio_interval(
    median: Floats, low: Floats, high: Floats, base: Floats, base_low: Floats, base_high: Floats
) -> RatioInterval:
    """Return median / base and its interval, from those of two independent measurements, all positive; ends may be NaN.

    Adds the distances to the ends in quadrature on a logarithmic scale ("method of variance estimates recovery", Donner
    and Zou, Statistical Methods in Medical Research 21, 2012).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = median / base
        below = np.hypot(np.log(median / low), np.log(base_high / base))
        above = np.hypot(np.log(high / median), np.log(base / base_low))
        return RatioInterval(ratio=ratio, low=ratio * np.exp(-below), high=ratio * np.exp(above))
