"""Quantities derived from measurements, as pandas tables for presets, the report and notebooks.

kernels.py                classifies profiled kernels by phase of the step and by kind
allocations.py            what a trial holds at its peak, and allocated memory over one iteration
status.py                 counts results by status and by flag
"""
