"""Not in the image: an embedded cluster, and the demo that plays on it."""
