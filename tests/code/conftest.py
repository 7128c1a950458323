"""One server of trials for all files of the folder: to start one takes as long as twenty of their trials."""

from collections.abc import Iterator

import pytest

from lmsweep.trials.isolation.client import IsolatedRunner


@pytest.fixture(scope="package")
def runner() -> Iterator[IsolatedRunner]:
    with IsolatedRunner() as runner:
        yield runner
