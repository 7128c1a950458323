"""What each operator of a step costs on a GPU, and so how long the step takes there; no torch.

`data` has the rates, with source and licence: operators that `lmsweep run operators` measured, and published ones.
"""
