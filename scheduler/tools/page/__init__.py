"""The content of the page, computed from state, queue and attempts: rules by domain, pending pods, decisions, rates."""
