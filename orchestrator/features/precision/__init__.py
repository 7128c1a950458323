"""The workload, the sweep and the tables `precision`: what number formats do to sums, types of tensors and results.

workload.py         the record of the workload
number_formats.py   the workload: sums and norms in 16 bits, then types and errors of a step
reference_pass.py   forward and backward in float64, and errors against them
tensor_dtypes.py    the type of each tensor of a training step
presets.py          the tables
"""

from lmsweep.orchestrator.feature import Feature

feature = Feature(name="precision")
