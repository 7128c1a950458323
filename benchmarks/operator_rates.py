"""Make the file of measured operators that ships from stores of `lmsweep run operators`, and say how sure they are.

    python -m benchmarks.operator_rates STORE...      # writes trials/analytic/rates/data/measured_operators.parquet
    python -m benchmarks.operator_rates --add STORE   # adds a machine to what ships
    python -m benchmarks.operator_rates --profiles STORE  # adds the products of its profiled steps in fp32
    python -m benchmarks.operator_rates               # of what ships: errors of a tenth, predicted from the rest
    python -m benchmarks.operator_rates --constants   # errors of products by the formula, one of its constants changed

For each class it prints how far the formula alone, and the formula with nine tenths of the points, are from the tenth.
"""

import sys
from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lmsweep.trials.analytic.datasheets import find_device
from lmsweep.trials.analytic.rates import product_rates
from lmsweep.trials.analytic.rates.hardware import hardware_of
from lmsweep.trials.analytic.rates.operators import Operator, class_of
from lmsweep.trials.analytic.rates.product_rates import LAYOUT_OF
from lmsweep.trials.analytic.rates.rate_data import DATA, MeasuredOperator, measured_operators
from lmsweep.trials.analytic.rates.rate_set import Rates
from lmsweep.trials.prediction.step_operators import step_operators
from lmsweep.trials.results.stored_config import config_of

COLUMNS = (
    "device_name",
    "kind",
    "name",
    "form",
    "shapes",
    "dtype",
    "bytes",
    "flops",
    "is_causal",
    "is_cold",
    "seconds",
)
TENTHS = 10
FILE = DATA / "measured_operators.parquet"


def write(tables: list[pa.Table], *, adds: bool) -> None:
    """Write the geometric mean of the machines that measured an operator; what ships counts as one machine."""
    machines = [*([pq.read_table(FILE)] if adds else []), *tables]
    seconds: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for machine in machines:
        for row in machine.to_pylist():
            seconds[tuple(row[name] for name in COLUMNS[:-1])].append(float(np.mean(row["seconds"])))
    print(f"{len(seconds)} operators, {sum(len(found) > 1 for found in seconds.values())} of them of several machines")
    rows = sorted((*key, float(f"{geometric_mean(found):.4g}")) for key, found in seconds.items())
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table({name: list(column) for name, column in columns.items()}), FILE, compression="zstd")


LAYOUT_OF_KERNEL = {"tn": "nt", "nn": "nn", "nt": "tn"}
"""Layout in the name of cuBLAS's kernel, which sees columns first -> the layout of PyTorch's rows."""
MODULES = {"attention": "attention.", "feed_forward": "feed_forward.", "forward": "head"}
"""Range of the profiler -> part of the path of the modules whose products it has; others have those of attention."""


def profiled(store: str) -> pa.Table:
    """Return the products in fp32 of profiled steps as rows of the file. A kernel says phase, part of the model, layout
    and how often it runs; products that are alike in these have one shape."""
    table = pd.read_parquet(Path(store) / "kernels")
    table = table[table["operator"].isin(["aten::mm", "aten::bmm"]) & table["mode"].eq("forward_backward")]
    rows = []
    for _, kernels in table[table["precision"] == "fp32"].groupby("measurement_id"):
        config, device_name = config_of(kernels.iloc[0].to_dict()), str(kernels["device_name"].iloc[0])
        took: dict[tuple[Any, ...], float] = defaultdict(float)
        parts = kernels.assign(layout=kernels["kernel"].str.extract(r"_(tn|nn|nt)_(?:n_|align)")[0])
        for one in parts[~parts["kernel"].str.startswith("Memset")].to_dict("records"):
            phase = "backward" if one["range"].startswith("backward of ") else "forward"
            key = phase, one["range"].removeprefix("backward of "), int(one["instances"] / one["steps"])
            layouts = [one["layout"]]
            if not isinstance(one["layout"], str):  # sums the parts of the split product that another kernel computes
                like = parts[(parts["range"] == one["range"]) & (parts["instances"] == one["instances"])]
                like = like[like["kernel"].str.contains("cutlass") & ~like["grid"].str.endswith(" 1")]
                layouts = like["layout"].tolist()[:1]
            for layout in layouts:
                took[*key, LAYOUT_OF_KERNEL[layout]] += one["mean"]
        groups: dict[tuple[Any, ...], list[Operator]] = defaultdict(list)
        batched = [one for one in step_operators(config) if one.name == "bmm"]
        for one in step_operators(config):
            if one.name == "mm":
                range_name = next(name for name, part in MODULES.items() if part in one.module)
            elif one.name == "bmm":  # forward has scores first, backward last
                range_name = "scores" if batched.index(one) in (0, 4, 5) else "value_matmul"
            else:
                continue
            groups[one.phase, range_name, one.layout, one.shapes].append(one)
        for (phase, range_name, layout, shapes), alike in groups.items():
            seconds = took.get((phase, range_name, sum(one.count for one in alike), layout))
            if seconds is None:
                print(f"{config.model}: no kernel of {phase} {range_name} {layout} {shapes}")
                continue
            rows.append({"device_name": device_name, "kind": "product", "name": alike[0].name, "form": layout,
                         "shapes": ",".join("x".join(map(str, shape)) for shape in shapes), "dtype": "float32",
                         "bytes": alike[0].bytes, "flops": alike[0].flops, "is_causal": False, "is_cold": False,
                         "seconds": seconds})  # fmt: skip
    return pa.Table.from_pylist(rows)


def operator_of(point: MeasuredOperator) -> Operator:
    return Operator(
        name=point.name,
        shapes=point.shapes,
        dtype=point.dtype,
        bytes=point.bytes,
        flops=point.flops,
        phase="optimizer" if point.kind == "optimizer" else "backward" if "gradient" in point.form else "forward",
        module="",
        is_causal=point.is_causal,
        layout=LAYOUT_OF.get(point.form, point.form),
    )


def report() -> None:
    of_device: dict[str, list[MeasuredOperator]] = defaultdict(list)
    for point in measured_operators():
        of_device[point.device_name].append(point)
    for name, points in of_device.items():
        device = find_device(name)
        assert device is not None
        bare = Rates(hardware_of(device), [])
        errors: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for tenth in range(TENTHS):
            rest = [one for i, one in enumerate(points) if i % TENTHS != tenth]
            rates = Rates(hardware_of(device), rest)
            for point in points[tenth::TENTHS]:
                operator = operator_of(point)
                both = (bare.of(operator).seconds / point.seconds - 1, rates.of(operator).seconds / point.seconds - 1)
                errors[class_of(operator), point.dtype].append(both)
        for key, both_errors in sorted(errors.items()):
            formula, corrected = (np.abs(column) for column in zip(*both_errors, strict=True))
            print(
                f"{name} {key[0]} {key[1]}: {len(both_errors)}; formula alone median {median(formula):.1%}, "
                f"95 % within {np.quantile(formula, 0.95):.0%}; with the others {median(corrected):.1%}, "
                f"{np.quantile(corrected, 0.95):.0%}"
            )


CHANGED = {
    "FILL_ELEMENTS": (0, 100, 128, 146, 170, 200, 300),
    "WHOLE_WAVES": (0, 0.25, 0.4, 0.5, 0.6, 0.75, 1),
    "OVERLAP_POWER": (1, 2, 3, 4, 4.5, 5, 6, 20),
    "SPLIT_SLOWDOWN": (1, 1.02, 1.05, 1.1, 1.2),
    "START_SECONDS": (0, 2e-6, 2.7e-6, 3.3e-6, 4e-6, 5e-6, 7e-6),
}


def constants() -> None:
    """Print how far products with aligned rows are from the formula alone, with the constants and with one changed."""
    measured: dict[tuple[str, str], list[tuple[product_rates.Product, str, float]]] = defaultdict(list)
    for point in measured_operators():
        if point.kind == "product":
            layout = LAYOUT_OF.get(point.form, point.form)
            product = product_rates.product_of(
                point.name, point.shapes, bytes=point.bytes, dtype=point.dtype, layouts=(layout,)
            )
            if product.alignment(layout) == product_rates.ALIGNMENT:
                measured[point.device_name, point.dtype].append((product, layout, point.seconds))
    for (name, dtype), products in sorted(measured.items()):
        device = find_device(name)
        assert device is not None
        rates = product_rates.ProductRates(hardware_of(device), [])
        print(f"{name} {dtype}: {len(products)} products")
        for constant, values in CHANGED.items():
            kept = getattr(product_rates, constant)
            for value in values:
                setattr(product_rates, constant, value)
                product_rates._work.cache_clear()
                logs = np.log([rates.formula(product, layout) / seconds for product, layout, seconds in products])
                off = np.abs(np.expm1(logs))
                print(
                    f"  {constant} {value:g}{' (in use)' if value == kept else ''}: median {median(off):.1%}, "
                    f"95 % within {np.quantile(off, 0.95):.0%}, rms of logarithms {np.sqrt(np.mean(logs**2)):.4f}"
                )
            setattr(product_rates, constant, kept)
            product_rates._work.cache_clear()


if __name__ == "__main__":
    if "--constants" in sys.argv:
        constants()
        sys.exit()
    if stores := [one for one in sys.argv[1:] if not one.startswith("--")]:
        profiles = "--profiles" in sys.argv
        tables = [profiled(one) if profiles else pq.read_table(Path(one) / "operator_times") for one in stores]
        write(tables, adds=profiles or "--add" in sys.argv)
    report()
