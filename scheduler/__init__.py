"""A second Kubernetes scheduler that keeps affinity counts instead of recounting. Start at README.md."""
