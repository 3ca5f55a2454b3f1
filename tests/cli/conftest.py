from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from scalewise.cli.main import cli

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}


@pytest.fixture
def run():
    """Run the command line in this process; the result has exit_code, stdout and stderr."""

    def invoke(*args, **env):
        return CliRunner(env={"COLUMNS": "100", **env}).invoke(cli, list(args))

    return invoke


@pytest.fixture
def config(tmp_path):
    """A Hugging Face config.json of Llama-2-7B's shape."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path
