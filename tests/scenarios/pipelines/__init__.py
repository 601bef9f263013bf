"""The full-size proofs of the pipeline's jobs; `python -m tests.scenarios.pipelines run` plays them."""
