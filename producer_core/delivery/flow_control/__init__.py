"""Control the flow of sends: limit their rate, and refuse messages during an outage."""
