"""Predicts how long a step takes on a device: from its operators, at the device's rates.

predicted_step.py   the seconds of a step, by operators that were recorded or by those in closed form
device_rates.py     the rates of a device: of a GPU, of a CPU's cores, or a stand-in for comparisons
measured_rates.py   the operators, collectives and launches that a store has measured
"""
