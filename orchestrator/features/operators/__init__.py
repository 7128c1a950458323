"""The workload and the sweep `operators`: times of single operators over sizes, from which plans predict steps.

workload.py            the record of the workload
operator_times.py      the workload: times the cases, and what the host takes for a launch
cases.py               an operator with operands, and the grids of sizes
product_cases.py       matrix products of linear layers, of attention written out, and of float8
attention_cases.py     fused attention, forward and backward
byte_cases.py          operators that compute little: element-wise, norms, softmax, embeddings, optimizers
"""

from lmsweep.orchestrator.feature import Feature

feature = Feature(name="operators")
