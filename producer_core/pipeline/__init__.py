"""Spark jobs over Kafka, for what one machine cannot do: each a chain of DataFrame to DataFrame functions."""
