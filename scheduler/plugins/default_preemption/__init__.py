"""DefaultPreemption: `eligibility` and `candidates` find victims, `choice` picks the node, `plugin` is the plugin."""
