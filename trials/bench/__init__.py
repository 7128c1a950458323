"""One trial in this process: its device, its workloads, its iterations and its fingerprint.

run_trial.py        runs the workloads of a trial in turn and turns each into rows
workbench.py        what the workloads of a trial share: the device, the step, the accounted time
own_workload.py     a workload of the user, or of another package
varied_steps.py     steps whose batches differ by the lengths of their documents
iterations.py       warm-up and measured iterations, a fixed number or `auto`; whether the GPU waited for the host
attention_error.py  the error of the user's attention against float64
fingerprint.py      the hardware and software of a trial; what the cores of a machine do per second, for plans
"""
