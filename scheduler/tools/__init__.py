"""What answers or acts beside the scheduler, one folder each. No tool sees another, but explain."""
