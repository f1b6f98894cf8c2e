"""What the page shows, computed from state, queue and attempts: rules by domain, pending pods, decisions, rates."""
