"""DefaultPreemption: `eligibility` and `candidates` find victims, `search` the nodes, `plugin` is the plugin."""
