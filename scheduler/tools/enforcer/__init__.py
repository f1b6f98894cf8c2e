"""
Finds required affinity rules of running pods that do not hold, and the pods to evict until every enforced one does.

The room is pure: stimuli and seconds go in, instructions come out, and the shell's enforcer carries them out. It never
decides where a pod runs.
"""
