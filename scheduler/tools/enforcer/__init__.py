"""
Finds required affinity rules of running pods that do not hold, and the pods to evict until every enforced one does.

`machine` and its rules are pure: stimuli and seconds go in, instructions come out. `loop` carries them out, with
`evictor`, `cost_writer` and `requests`. Nothing here decides where a pod runs.
"""
