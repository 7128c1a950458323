"""One trial in this process: the device made ready, the model built, iterations taken, the fingerprint read.

run.py           the workloads of a trial in turn, each to its rows
workbench.py     what a workload is handed: the configuration, the step, a quiet process
iterations.py    warm-up and measured iterations, as many as were asked for or as it takes
fingerprint.py   the hardware and software that the trial met
"""
