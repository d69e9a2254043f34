"""What is published beside the code is what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from storagetest import config
from storagetest.config.schema import schema_text

ROOT = Path(__file__).parents[2]


def test_the_json_schema_is_the_models():
    published = (ROOT / "docs/reference/targets.schema.json").read_text()
    assert published == schema_text(), "run: storagetest schema > docs/reference/targets.schema.json"


@pytest.mark.parametrize("path", sorted((ROOT / "examples/targets").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_load(path: Path):
    assert config.load(path).variants
