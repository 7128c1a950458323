"""Arithmetic that needs no device: FLOPs, bytes, datasheets, prices, the interval of a median."""
