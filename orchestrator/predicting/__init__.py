"""Predicts how long a step takes on a device: from its operators, at the device's rates.

predicted_step.py   the seconds of a step, by operators that were recorded or by those in closed form
varied_times.py     the seconds of steps whose batches differ, from a few of them
device_rates.py     the rates of a device, as a store has measured it, else as it ships; a stand-in for comparisons
"""
