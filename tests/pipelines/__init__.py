"""The full-size proofs of the pipeline's jobs; `python -m tests.pipelines run` plays them."""
