"""
Controllers of the embedded cluster: deployments roll, replica sets keep their pods, bound pods run.

What belongs here: pure plans (objects and a time in, actions out) and the one loop that carries actions out
on the store. Nothing here speaks HTTP.
"""
