"""What follows from measurements: cost, roofline, scaling, kernels, memory. Plain frames, for tables, page and
notebooks."""
