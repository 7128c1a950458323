"""Quantities derived from measurements, as pandas tables for presets, the report and notebooks.

cost.py                   dollars and joules per million tokens; steps until compiling has saved its time
roofline.py               rate of a step against the peaks of its device, measured or from the datasheet
scaling.py                exponents of growth with context and parameters; the largest sizes that fit in memory
communication_limits.py   ranks above which communication takes longer than computation, and what a rank holds
kernels.py                classifies profiled kernels by phase of the step and by kind
allocations.py            what a trial holds at its peak, and allocated memory over one iteration
status.py                 counts results by status and by flag
"""
