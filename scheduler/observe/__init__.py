"""What operators see: metrics, logs, the wrappers that time plugins from outside."""
