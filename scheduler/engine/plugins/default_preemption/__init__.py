"""DefaultPreemption: `candidates` finds victims, `search` the nodes; `plugin` is the plugin."""
