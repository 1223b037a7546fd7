"""One extracting process for all tests of the folder: starting one takes a second."""

import asyncio
from collections.abc import Iterator

import pytest

from workloads.deep_research.serving.extractors import Extractor


@pytest.fixture(scope="session")
def extractor() -> Iterator[Extractor]:
    made = Extractor(processes=1)
    yield made
    asyncio.run(made.close())
