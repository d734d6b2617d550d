"""The fake client of Hugging Face's hub refuses what the original refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox import head_node

pytestmark = pytest.mark.sweep


@pytest.fixture
def download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    module: dict[str, Any] = {}
    exec(head_node.MODULES["huggingface-hub"], module)  # noqa: S102  as the nodes import it
    return lambda: str(module["snapshot_download"]("a/model", allow_patterns=["config.json"]))


@pytest.mark.parametrize(
    ("name", "value"), [("HF_HUB_OFFLINE", "1"), ("HF_HUB_OFFLINE", "true"), ("TRANSFORMERS_OFFLINE", "YES")]
)
def test_offline_only_the_cache_is_used(
    name: str, value: str, download: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConnectionError, match="offline mode is enabled"):
        download()
    monkeypatch.setenv(name, "0")
    cached = download()
    assert [file.name for file in Path(cached).iterdir()] == ["config.json"]
    monkeypatch.setenv(name, value)
    assert download() == cached
