"""Questions made here go to a cache of the test run, not to the user's."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def fresh_cache(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    patch = pytest.MonkeyPatch()
    patch.setenv("REHARNESS_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
