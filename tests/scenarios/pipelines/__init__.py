"""Full-size tests of the Spark jobs; `python -m tests.scenarios.pipelines run` runs them."""
