"""
Which affinity rules of running pods do not hold, and which pods have to go until those that are enforced do.

Pure: the state is fed by stimuli, the seconds are an argument, and what follows is returned as orders. The shell's
enforcer carries them out; nobody else imports this room. It never decides where a pod runs.
"""
