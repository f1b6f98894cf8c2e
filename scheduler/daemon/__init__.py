"""The process around the engine: its client, its loop, its writes, its port, its metrics, its settings."""
