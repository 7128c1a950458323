"""What rounding does: sums in 16 bits, errors against float64, the type of each tensor."""
