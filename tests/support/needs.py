"""What a test needs and not every environment has."""

import pytest
import torch
from torch.nn import functional

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_chunked_loss = pytest.mark.skipif(
    not hasattr(functional, "linear_cross_entropy"), reason="loss chunked needs PyTorch 2.13 or later"
)
