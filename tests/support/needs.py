"""What a test needs and not every environment has."""

import pytest
from torch.nn import functional

needs_chunked_loss = pytest.mark.skipif(
    not hasattr(functional, "linear_cross_entropy"), reason="loss chunked needs PyTorch 2.13 or later"
)
